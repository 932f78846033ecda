#!/bin/sh
# The evaluations of results/README.md, the cheapest answers first. From the top of the repository:
#   results/evaluate.sh data [model...]
# where `data` holds cifar-10-batches-py; without models, the six of seed 0. Killed or stopped, it goes on where it was; on another machine from the
# copies in results/stores, which are renewed whenever an evaluation ends. Two processes share each store.
# shellcheck disable=SC2086 # the flags are words
set -eu
data=${1:?where is the folder that holds cifar-10-batches-py?}
shift
[ $# -gt 0 ] || set -- trades-random trades pgdat-random pgdat resnet-trades resnet-pgdat
export OMP_NUM_THREADS=1
mkdir -p runs/results

shards() { find "$1/clean" "$1/attacks" -name '*.parquet' 2>/dev/null | wc -l; }

evaluate() { # model, folder, further flags
  model=cifar10-tiny-$1 store=runs/results/$2 kept=results/stores/$2
  case $1 in *-seed*) model=results/checkpoints/$model ;; esac
  shift 2
  if [ "$(shards "$kept")" -gt "$(shards "$store")" ]; then
    [ ! -e "$store" ] || { echo "$kept holds more than $store: move one of them away" >&2; exit 1; }
    rm -rf "$store.new"
    cp -r "$kept" "$store.new"
    mv "$store.new" "$store"
  fi
  code=0
  torchrun --standalone --nproc_per_node 2 -m robustdeq.cli.main evaluate "$model" --out "$store" --data-root "$data" "$@" || code=$?
  python results/condense.py "$store" "$kept"
  [ $code = 0 ] || exit $code
}

hundreds="--limit 200 --batch-size 200"
defended="--limit 200 --batch-size 100 --shard-size 200 --defence entropy --defence.direction sign"

for name; do
  case $name in # the sizes that a store was begun with
    trades-random) thousand="--limit 1000 --batch-size 500 --shard-size 500" ;;
    *-seed*) thousand="--limit 1000 --batch-size 125 --shard-size 250" ;;
    *) thousand="--limit 1000 --batch-size 250 --shard-size 250" ;;
  esac
  case $name in
    resnet-*) evaluate "$name" "$name" --suite results/suites/resnet.yaml $thousand ;;
    *-seed*) evaluate "$name" "$name" --suite "results/suites/seed-${name%-seed*}.yaml" $thousand ;;
    *) evaluate "$name" "$name" --suite results/suites/undefended.yaml $thousand ;;
  esac
  # its kept grid was run when the ready-made attack stored no residuals
  [ "$name" != trades-random ] || evaluate "$name" "$name-quick" --suite quick --limit 1000 --batch-size 250 --shard-size 250
done
for name; do
  case $name in
    trades | trades-random)
      evaluate "$name" "$name-variants" --suite "results/suites/variants-$name.yaml" $hundreds
      evaluate "$name" "$name-settings" --suite "results/suites/settings-$name.yaml" $hundreds
      evaluate "$name" "$name-table4" --suite table4 $hundreds
      evaluate "$name" "$name-defended-sign" --suite "results/suites/aware-$name.yaml" --aware $defended
      evaluate "$name" "$name-defended-sign" --suite audit $defended # the last: it judges all that the folder holds
      ;;
  esac
done
# Table 3: first the images of each, then each is shown those of the others. The images are not under version control: what is kept cannot go on elsewhere.
transfer() { # name, defence or nothing, its sources
  name=$1 store=$1$2-transfer
  flags="--suite results/suites/transfer-$1.yaml --limit 500 --batch-size 125 --shard-size 250"
  [ -z "$2" ] || flags="$flags --aware --defence entropy --defence.direction sign"
  shift 2
  evaluate "$name" "$store" $flags "$@"
}
others() { find runs/results -maxdepth 1 -name 'trades*-transfer' ! -name "$1-transfer" | sort; }
case " $* " in *" trades "*) both=1 ;; *) both= ;; esac
case " $* " in *" trades-random "*) ;; *) both= ;; esac
if [ -e results/stores/trades-transfer ] && [ ! -e runs/results/trades-transfer ]; then
  echo "Table 3 stays as it is in results/stores; to make it again, remove results/stores/*-transfer"
elif [ $both ]; then
  for name in trades trades-random; do
    transfer $name ""
    transfer $name -sign
  done
  for name in trades trades-random; do
    transfer $name "" --sources $(others $name)
    transfer $name -sign --sources $(others $name-sign)
  done
fi
robustdeq report results/stores/*/ results/trainings/*/ benchmarks --out results/report
