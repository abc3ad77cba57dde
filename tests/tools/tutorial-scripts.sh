# The scripts under the names that tutorials have, without Python: a tutorial's commands run
# unchanged except for `python`.
. "$(dirname "$0")/prelude"
TREE=$(cd "$GOLDEN/../.." && pwd)
export GRISTMILL_BIN=$(dirname "$(command -v trainer)")
cp -r "$TREE/scripts" megatron && cd megatron # a copy works like the tree's own
for i in $(seq 40); do
  echo '{"text": "5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"}'
done >corpus.json
echo "- tools/preprocess_data.py, tools/merge_datasets.py"
tools/preprocess_data.py --input corpus.json --output-prefix my-a \
  --tokenizer-type NullTokenizer --vocab-size 100 --workers 2 --append-eod 2>&1
sh ./tools/preprocess_data.py --input corpus.json --output-prefix my-b \
  --tokenizer-type NullTokenizer --vocab-size 100 --append-eod -q
mkdir both && mv my-* both &&
  tools/merge_datasets.py --input both --output-prefix my-gpt2_text_document -q && ls my-*
echo "- pretrain_gpt.py \$DISTRIBUTED_ARGS on two hosts"
GPT_ARGS="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16
  --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --lr 0.001
  --train-iters 4 --log-interval 2 --eval-iters 0 --vocab-size 128 --eod-id 100
  --split 100,0,0 --device cpu --data-path my-gpt2_text_document --local_rank=0"
own_ports
DISTRIBUTED_ARGS="--nproc_per_node 1 --nnodes 2 --master_addr 127.0.0.1 --master_port $port"
./pretrain_gpt.py $GPT_ARGS $DISTRIBUTED_ARGS --node_rank 1 >second 2>&1 &
./pretrain_gpt.py $GPT_ARGS $DISTRIBUTED_ARGS --node_rank 0 >first 2>&1
echo "exit $?"; wait $!; echo "exit $?"
grep -cE '^ \[.*\] iteration' first
launched='launched by environment: rank 0 of 2, local rank 0 of 1, node 0 of 2'
grep -o "$launched; rank 0 at 127.0.0.1" first | head -n 1
# One host of a tutorial: the flags for that change nothing.
./pretrain_gpt.py $GPT_ARGS --nproc_per_node 2 --nnodes 1 --node_rank 0 \
  --master_addr localhost --master_port 6000 >one 2>&1; echo "exit $?"
[ "$(grep -oE 'lm loss: [^|]*' one)" = "$(grep -oE 'lm loss: [^|]*' first)" ] &&
  echo "the same losses"
# Of many ranks, one names what has no effect: under our own launcher and under others.
grep -c 'no effect here' one
by_hand() { # VARIABLE: rank 1 of 2 in a world that the variables say
  env MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 20)) WORLD_SIZE=2 LOCAL_RANK=1 "$1=1" \
    ./pretrain_gpt.py $GPT_ARGS --dry-run 2>&1 | grep -c 'no effect here'
}
by_hand RANK; by_hand SLURM_PROCID; by_hand OMPI_COMM_WORLD_RANK
by_hand MV2_COMM_WORLD_RANK; by_hand PMI_RANK
for wrong in "--nnodes 2" "--nnodes 2 --node_rank 0" "--nnodes 2 --node_rank 2 --master_addr a" \
  "--node_rank 1"; do
  ./pretrain_gpt.py $GPT_ARGS $wrong 2>&1; echo "exit $?"
done
echo "- programs are found"
mkdir -p prefix/bin prefix/share/gristmill elsewhere &&
  cp -r ../megatron/run ../megatron/*.py prefix/share/gristmill/ &&
  mkdir prefix/share/gristmill/scripts
cp -r run *.py tools prefix/share/gristmill/scripts
printf '#!/bin/sh\necho "beside: $*"\n' >prefix/bin/trainer && chmod +x prefix/bin/trainer
ln -s ../prefix/share/gristmill/scripts/pretrain_gpt.py elsewhere/pretrain_gpt.py
GRISTMILL_BIN= elsewhere/pretrain_gpt.py 'two words' --flag
printf '#!/bin/sh\necho "on the path: $*"\n' >elsewhere/trainer && chmod +x elsewhere/trainer
GRISTMILL_BIN= PATH=$PWD/elsewhere:/usr/bin:/bin ./pretrain_gpt.py x
echo "- train.py and deepy.py"
export GRISTMILL_BIN=$PWD/prefix/bin
./deepy.py train.py -d configs pythia-160m.yml local_setup
./deepy.py ./train.py --conf_dir=my\ configs/ a.yml
./train.py a b.yaml --local_rank=1
./train.py 2>&1; ./train.py -x a 2>&1; ./train.py -d 2>&1
./deepy.py generate.py a 2>&1; ./deepy.py 2>&1
