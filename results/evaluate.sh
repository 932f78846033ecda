#!/bin/sh
# The evaluations of results/README.md, by one process. From the top of the repository:
#   results/evaluate.sh DATA WHAT NAME-seedN...
# DATA holds cifar-10-batches-py. WHAT is
#   undefended  PGD-10 and AutoAttack, 1,000 test images; any model
#   grid        the 144 attacks, 1,000 images, shown to both variants of the entropy reduction too; a DEQ
#   settings    Tables 4 and 5 and the switches of the entropy reduction, 200 images; trades-seed0, trades-random-seed0
#   defended    aware attacks and AutoAttack on the defended model, then its audit; the same two
# Killed or stopped, it goes on where it was; on another machine from the copies in results/stores, which are renewed whenever an
# evaluation ends or is interrupted.
# shellcheck disable=SC2086 # the flags are words
set -eu
data=${1:?where is the folder that holds cifar-10-batches-py?} what=${2:?what shall be evaluated?}
shift 2
export OMP_NUM_THREADS=1
mkdir -p runs/stores

shards() { find "$1/clean" "$1/attacks" -name '*.parquet' 2>/dev/null | wc -l; }

evaluate() { # name, store, flags
  model=cifar10-tiny-${1%-seed*} store=runs/stores/$2 kept=results/stores/$2
  [ "${1##*-seed}" = 0 ] || model=results/checkpoints/$1
  shift 2
  if [ "$(shards "$kept")" -gt "$(shards "$store")" ]; then
    [ ! -e "$store" ] || { echo "$kept holds more than $store: move one of them away" >&2; exit 1; }
    cp -r "$kept" "$store.new"
    mv "$store.new" "$store"
  fi
  code=0
  robustdeq evaluate "$model" --out "$store" --data-root "$data" "$@" || code=$?
  python results/condense.py "$store" "$kept"
  [ $code = 0 ] || exit $code
}

for name; do
  method=${name%-seed*}
  hundreds="--limit 200 --batch-size 200"
  defended="--limit 200 --batch-size 100 --shard-size 200 --defence entropy --defence.direction sign"
  case $what in
    undefended)
      evaluate "$name" "$name" --suite results/suites/quick-and-autoattack.yaml --limit 1000 --batch-size 125 --shard-size 125
      ;;
    grid) evaluate "$name" "$name-grid" --suite results/suites/grid.yaml --limit 1000 --batch-size 250 --shard-size 500 ;;
    settings)
      evaluate "$name" "$name-variants" --suite "results/suites/variants-$method.yaml" $hundreds
      evaluate "$name" "$name-settings" --suite "results/suites/settings-$method.yaml" $hundreds
      evaluate "$name" "$name-table4" --suite table4 $hundreds
      ;;
    defended)
      evaluate "$name" "$name-defended" --suite "results/suites/aware-$method.yaml" --aware $defended
      evaluate "$name" "$name-defended" --suite audit $defended # the last: it judges all that the folder holds
      ;;
    *) echo "expected undefended, grid, settings or defended, got $what" >&2; exit 2 ;;
  esac
done
