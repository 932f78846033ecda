#!/bin/sh
# Trains the models of results/README.md, one after the other, and keeps what they leave: weights in results/checkpoints,
# configuration and curve in results/trainings. A name is a recipe of results/recipes and a seed. From the top of the
# repository, with the folder that holds cifar-10-batches-py; each training resumes from its checkpoint in runs/final:
#   results/train.sh DATA pgdat-seed0 resnet-pgdat-seed0 ...
set -eu
data=$1
shift
export OMP_NUM_THREADS=1
for name; do
  run=runs/final/$name
  robustdeq train --recipe "results/recipes/${name%-seed*}.yaml" --out "$run" --data-root "$data" --seed "${name##*-seed}"
  mkdir -p "results/checkpoints/$name" "results/trainings/$name"
  cp "$run/best/config.json" "$run/best/model.safetensors" "results/checkpoints/$name"
  cp "$run/run.json" "$run/metrics.csv" "results/trainings/$name"
done
