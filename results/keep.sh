#!/bin/sh
# Puts what finished trainings left into the repository: weights into the package, the curve and its configuration here. From its top:
#   results/keep.sh trades-random trades ...
set -eu
for name; do
  run=runs/final/cifar10-tiny-$name
  shipped=src/robustdeq/checkpoints/cifar10-tiny-$name
  mkdir -p "$shipped" "results/trainings/$name"
  cp "$run/best/config.json" "$run/best/model.safetensors" "$shipped"
  cp "$run/run.json" "$run/metrics.csv" "results/trainings/$name"
done
