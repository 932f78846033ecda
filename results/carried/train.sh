#!/bin/sh
# Trains the models that compare cold and carried inner attacks, one after the other, into runs/carried/. From the
# repository's top, with the folder of the data; each training resumes from its checkpoint:
#   results/carried/train.sh DATA living-carried1 living-carried2 living-cold tiny-trades-random tiny-pgdat
set -eu
data=$1
shift
for name; do
  OMP_NUM_THREADS=1 robustdeq train --recipe "results/carried/$name.yaml" --out "runs/carried/$name" --data-root "$data"
done
