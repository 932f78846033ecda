#!/bin/sh
# Puts what finished trainings left into the repository: the curve and its configuration here, the weights into the package, those of
# further seeds here too. From its top:
#   results/keep.sh trades-random trades trades-seed1 ...
set -eu
for name; do
  run=runs/final/cifar10-tiny-$name
  case $name in
    *-seed*) weights=results/checkpoints ;;
    *) weights=src/robustdeq/checkpoints ;;
  esac
  weights=$weights/cifar10-tiny-$name
  mkdir -p "$weights" "results/trainings/$name"
  cp "$run/best/config.json" "$run/best/model.safetensors" "$weights"
  cp "$run/run.json" "$run/metrics.csv" "results/trainings/$name"
done
