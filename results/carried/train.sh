#!/bin/sh
# Trains the models that compare cold and carried inner attacks, one after the other, into runs/carried/. From the
# repository's top, with the folder of the data; a name may end in a seed; each training resumes from its checkpoint:
#   results/carried/train.sh DATA living-carried1 living-cold tiny-pgdat tiny-trades-random tiny-trades-random-seed1
set -eu
data=$1
shift
for name; do
  seed=0
  case $name in *-seed*) seed=${name##*-seed} ;; esac
  OMP_NUM_THREADS=1 robustdeq train --recipe "results/carried/recipes/${name%-seed*}.yaml" --out "runs/carried/$name" --data-root "$data" --seed "$seed"
done
