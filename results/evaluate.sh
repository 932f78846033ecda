#!/bin/sh
# The evaluations of results/README.md. From the top of the repository:
#   results/evaluate.sh data [model...]
# where `data` holds cifar-10-batches-py; without models, all six. Killed or stopped, it goes on where it was; two processes share each store.
# shellcheck disable=SC2086 # the flags are words
set -eu
data=${1:?where is the folder that holds cifar-10-batches-py?}
shift
[ $# -gt 0 ] || set -- trades-random trades pgdat-random pgdat resnet-trades resnet-pgdat
export OMP_NUM_THREADS=1

evaluate() { # model, folder, further flags
  model=$1 out=$2
  shift 2
  torchrun --standalone --nproc_per_node 2 -m robustdeq.cli.main evaluate "cifar10-tiny-$model" --out "runs/results/$out" \
    --data-root "$data" "$@"
}

defended() { # model, folder, further flags: 200 images; what a kill can lose is 50 images of an attack
  model=$1 out=$2
  shift 2
  evaluate "$model" "$out" --suite "results/suites/aware-$model.yaml" --aware "$@"
  evaluate "$model" "$out" --suite table4 "$@"
  evaluate "$model" "$out" --suite audit "$@" # the last: it judges all that the folder holds
}

thousand="--limit 1000 --batch-size 250 --shard-size 250"
hundreds="--limit 200 --batch-size 200"
defence="--limit 200 --batch-size 50 --shard-size 50 --defence entropy"

for name; do
  case $name in
    resnet-*) evaluate "$name" "$name" --suite results/suites/resnet.yaml $thousand ;;
    *) evaluate "$name" "$name" --suite results/suites/undefended.yaml $thousand ;;
  esac
done
for name; do
  case $name in
    trades | trades-random)
      evaluate "$name" "$name-variants" --suite "results/suites/variants-$name.yaml" $hundreds
      evaluate "$name" "$name-settings" --suite "results/suites/settings-$name.yaml" $hundreds
      defended "$name" "$name-defended-sign" $defence --defence.direction sign
      defended "$name" "$name-defended" $defence
      ;;
  esac
done
for store in runs/results/*/; do
  python results/condense.py "$store" "results/stores/$(basename "$store")"
done
robustdeq report runs/results/*/ runs/final/*/ --out results/report
