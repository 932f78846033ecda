#!/bin/sh
# The evaluations of results/README.md, by one process. From the top of the repository:
#   results/evaluate.sh DATA WHAT NAME-seedN...
#   results/evaluate.sh DATA all      of every model whose weights are here
# DATA holds cifar-10-batches-py. WHAT is
#   undefended  PGD-10 and AutoAttack, 1,000 test images; any model
#   grid        the 144 attacks, each attacked image shown to both variants of the entropy reduction too, 1,000 images; a DEQ
#   settings    Tables 4 and 5 and the switches of the entropy reduction, 200 images; trades-seed0 and trades-random-seed0, after their grid
#   defended    aware attacks and AutoAttack on the model defended along the sign, then its audit, 200 images; the same two
# Killed or stopped, it goes on where it was; on another machine from the copies in results/stores, which are renewed whenever an
# evaluation ends or is interrupted.
# shellcheck disable=SC2086 # the flags are words
set -eu
data=${1:?where is the folder that holds cifar-10-batches-py?} what=${2:?what shall be evaluated?}
shift 2
trap : INT # the evaluation stops by itself and stores what it has; then the copy is renewed
export OMP_NUM_THREADS=1
mkdir -p runs/stores

shards() { find "$1/clean" "$1/attacks" -name '*.parquet' 2>/dev/null | wc -l; }

weights() { # name
  case $1 in
    *-seed0) echo "src/robustdeq/checkpoints/cifar10-tiny-${1%-seed0}" ;;
    *) echo "results/checkpoints/$1" ;;
  esac
}

evaluate() { # name, store, flags
  model=$(weights "$1") store=runs/stores/$2 kept=results/stores/$2
  model=${model#src/robustdeq/checkpoints/} # a shipped name
  shift 2
  if [ "$(shards "$kept")" -gt "$(shards "$store")" ]; then
    [ ! -e "$store" ] || { echo "$kept holds more than $store: move one of them away" >&2; exit 1; }
    rm -rf "$store.new"
    cp -r "$kept" "$store.new"
    mv "$store.new" "$store"
  fi
  code=0
  robustdeq evaluate "$model" --out "$store" --data-root "$data" "$@" || code=$?
  [ ! -e "$store/manifest.json" ] || python results/condense.py "$store" "$kept"
  [ $code = 0 ] || exit $code
}

one() { # what, name
  method=${2%-seed*}
  hundreds="--limit 200 --batch-size 200"
  defended="--limit 200 --batch-size 100 --shard-size 200 --defence entropy --defence.direction sign"
  case $1 in
    undefended) evaluate "$2" "$2" --suite results/suites/quick-and-autoattack.yaml --limit 1000 --batch-size 250 --shard-size 250 ;;
    grid) evaluate "$2" "$2-grid" --suite results/suites/grid.yaml --limit 1000 --batch-size 250 --shard-size 500 ;;
    settings)
      evaluate "$2" "$2-variants" --suite "results/suites/variants-$method.yaml" $hundreds
      evaluate "$2" "$2-settings" --suite "results/suites/settings-$method.yaml" $hundreds
      evaluate "$2" "$2-table4" --suite table4 $hundreds
      ;;
    defended)
      evaluate "$2" "$2-defended" --suite "results/suites/aware-$method.yaml" --aware $defended
      evaluate "$2" "$2-defended" --suite audit $defended # the last: it judges all that the folder holds
      ;;
    *) echo "expected undefended, grid, settings, defended or all, got $1" >&2; exit 2 ;;
  esac
}

if [ "$what" != all ]; then
  [ $# -gt 0 ] || { echo "which models, such as pgdat-seed0?" >&2; exit 2; }
  for name; do one "$what" "$name"; done
  exit
fi
for seed in 0 1 2; do
  for method in pgdat pgdat-random trades trades-random resnet-pgdat resnet-trades; do
    [ ! -e "$(weights $method-seed$seed)" ] || one undefended $method-seed$seed
  done
done
for method in trades trades-random pgdat pgdat-random; do one grid $method-seed0; done
for what in settings defended; do
  for method in trades trades-random; do one $what $method-seed0; done
done
python results/answers.py
python results/cards.py
robustdeq report results/stores/*-seed0*/ results/trainings/*-seed0/ benchmarks --out results/report
