#!/bin/sh
# Trains the models of results/equal-time/README.md, one after the other, and keeps what they leave: weights in
# checkpoints/, configuration and curve in trainings/. A name is a recipe of recipes/ and a seed. From the top of the
# repository, with the folder that holds cifar-10-batches-py; each training resumes from its checkpoint:
#   results/equal-time/train.sh DATA pgdat-seed0 resnet-pgdat-seed0 ...
set -eu
data=$1
shift
here=results/equal-time
export OMP_NUM_THREADS=1
for name; do
  run=runs/equal-time/trainings/$name
  robustdeq train --recipe "$here/recipes/${name%-seed*}.yaml" --out "$run" --data-root "$data" --seed "${name##*-seed}"
  mkdir -p "$here/checkpoints/$name" "$here/trainings/$name"
  grep -v '"data_root"' "$run/best/config.json" > "$here/checkpoints/$name/config.json" # where the data lay there
  cp "$run/best/model.safetensors" "$here/checkpoints/$name"
  cp "$run/run.json" "$run/metrics.csv" "$here/trainings/$name"
done
