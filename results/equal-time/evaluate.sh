#!/bin/sh
# PGD-10 and AutoAttack on the first 1,000 test images for what train.sh made, one model after the other; the copies
# without images go to stores/. Killed or stopped, it resumes, on another machine from these copies. From the top of the
# repository, with the folder that holds cifar-10-batches-py:
#   results/equal-time/evaluate.sh DATA pgdat-seed0 resnet-pgdat-seed0 ... && python results/answers.py
set -eu
data=$1
shift
here=results/equal-time
export OMP_NUM_THREADS=1
for name; do
  store=runs/equal-time/stores/$name kept=$here/stores/$name
  mkdir -p runs/equal-time/stores
  if [ -e "$kept" ] && [ ! -e "$store" ]; then
    cp -r "$kept" "$store.new"
    mv "$store.new" "$store"
  fi
  robustdeq evaluate "$here/checkpoints/$name" --suite results/suites/carried.yaml --limit 1000 --batch-size 125 --shard-size 125 \
    --out "$store" --data-root "$data"
  python results/condense.py "$store" "$kept"
done
