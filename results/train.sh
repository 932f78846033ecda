#!/bin/sh
# Trains the models of results/README.md, one after the other, and keeps what they leave: weights of seed 0 in the package, of others in
# checkpoints/, configuration and curve in trainings/. A name is a recipe, without cifar10-tiny-, and a seed. From the top of the
# repository, with the folder that holds cifar-10-batches-py; each training resumes from its checkpoint:
#   results/train.sh DATA pgdat-seed0 resnet-pgdat-seed0 ...
set -eu
data=$1
shift
export OMP_NUM_THREADS=1
for name; do
  recipe=cifar10-tiny-${name%-seed*} seed=${name##*-seed} run=runs/trainings/$name
  robustdeq train --recipe "$recipe" --out "$run" --data-root "$data" --seed "$seed"
  weights=results/checkpoints/$name kept=results/trainings/$name
  [ "$seed" != 0 ] || weights=src/robustdeq/checkpoints/$recipe
  mkdir -p "$weights" "$kept"
  grep -v '"data_root"' "$run/best/config.json" > "$weights/config.json" # where the data lay there
  cp "$run/best/model.safetensors" "$weights"
  cp "$run/run.json" "$run/metrics.csv" "$kept"
done
