#!/bin/sh
# PGD-10 and AutoAttack on 500 test images for the models that compare cold and carried inner attacks, then the table
# of compare.py. From the repository's top, with the folder of the data; stopped, it goes on where it was:
#   results/carried/evaluate.sh DATA living-cold living-carried1 living-carried2 tiny-pgdat tiny-trades-random
set -eu
data=$1
shift
export OMP_NUM_THREADS=1
for name; do
  checkpoint=results/carried/checkpoints/$name
  [ -e "$checkpoint" ] || checkpoint=results/frozen/checkpoints/$name
  store=runs/carried-stores/$name
  robustdeq evaluate "$checkpoint" --suite results/suites/quick-and-autoattack.yaml --limit 500 --batch-size 125 --out "$store" --data-root "$data"
  python results/condense.py "$store" "results/carried/stores/$name"
done
python results/carried/compare.py
