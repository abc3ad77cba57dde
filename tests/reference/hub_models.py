"""Configurations of models as in their folders on the hub (config.json; judge_hub_models.py reduces
the sizes).

Copied by hand from those files, not downloaded. The values that determine how a model computes are
theirs, and so are the keys that have no effect. MODELS: name on the hub: (config.json, layout of
the tokenizer's files, dtype of the weights).
SPDX-License-Identifier: MIT
"""


def gpt2(**more):
    base = {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "embd_pdrop": 0.1,
        "eos_token_id": 50256,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
    }
    return {**base, **more}


def opt(**more):
    base = {
        "_name_or_path": "facebook/opt-125m",
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "architectures": ["OPTForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "do_layer_norm_before": True,
        "dropout": 0.1,
        "eos_token_id": 2,
        "ffn_dim": 3072,
        "hidden_size": 768,
        "init_std": 0.02,
        "layerdrop": 0.0,
        "max_position_embeddings": 2048,
        "model_type": "opt",
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pad_token_id": 1,
        "prefix": "</s>",
        "torch_dtype": "float16",
        "transformers_version": "4.21.0.dev0",
        "use_cache": True,
        "vocab_size": 50272,
        "word_embed_proj_dim": 768,
    }
    return {**base, **more}


def neox(**more):
    base = {
        "architectures": ["GPTNeoXForCausalLM"],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "hidden_act": "gelu",
        "hidden_size": 512,
        "initializer_range": 0.02,
        "intermediate_size": 2048,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048,
        "model_type": "gpt_neox",
        "num_attention_heads": 8,
        "num_hidden_layers": 6,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "transformers_version": "4.24.0",
        "use_cache": True,
        "use_parallel_residual": True,
        "vocab_size": 50304,
    }
    return {**base, **more}


def llama(**more):
    base = {
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "transformers_version": "4.31.0.dev0",
        "use_cache": True,
        "vocab_size": 32000,
    }
    return {**base, **more}


def llama3(**more):
    return llama(
        **{
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 128000,
            "eos_token_id": 128001,
            "intermediate_size": 14336,
            "max_position_embeddings": 8192,
            "num_key_value_heads": 8,
            "rope_theta": 500000.0,
            "torch_dtype": "bfloat16",
            "vocab_size": 128256,
            **more,
        }
    )


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def scaled(factor, low=1.0, high=4.0, original=8192):
    return {
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
        "rope_type": "llama3",
    }


def mistral(**more):
    base = {
        "architectures": ["MistralForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "model_type": "mistral",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.34.0.dev0",
        "use_cache": True,
        "vocab_size": 32000,
    }
    return {**base, **more}


def qwen2(**more):
    base = {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151643,
        "hidden_act": "silu",
        "hidden_size": 896,
        "initializer_range": 0.02,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "model_type": "qwen2",
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1",
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    }
    return {**base, **more}


def qwen3(**more):
    base = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "model_type": "qwen3",
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    }
    return {**base, **more}


def other(kind, architecture, **more):
    return {
        "architectures": [architecture],
        "model_type": kind,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 50304,
        **more,
    }


DIALOGUE = {"task_specific_params": {"conversational": {"max_length": 1000}}}
LABELS = {"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}

MODELS = {
    "openai-community/gpt2": (gpt2(), "gpt2", "float32"),
    "openai-community/gpt2-xl": (
        gpt2(n_embd=1600, n_head=25, n_layer=48, output_past=True),
        "gpt2",
        "float32",
    ),
    "distilbert/distilgpt2": (gpt2(n_layer=6, **LABELS), "gpt2", "float32"),
    "microsoft/DialoGPT-medium": (
        gpt2(n_embd=1024, n_head=16, n_layer=24, **DIALOGUE),
        "gpt2",
        "float32",
    ),
    "rinna/japanese-gpt2-small": (
        gpt2(
            n_inner=3072,
            bos_token_id=1,
            eos_token_id=2,
            gradient_checkpointing=False,
            reorder_and_upcast_attn=False,
            scale_attn_by_inverse_layer_idx=False,
            scale_attn_weights=True,
        ),
        "none",
        "float32",
    ),
    "cerebras/Cerebras-GPT-111M": (
        gpt2(
            activation_function="gelu",
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
            n_inner=3072,
            n_positions=2048,
            scale_attn_weights=True,
        ),
        "gpt2",
        "float32",
    ),
    "stanford-crfm/alias-gpt2-small-x21": (
        gpt2(reorder_and_upcast_attn=True, scale_attn_by_inverse_layer_idx=True),
        "gpt2",
        "float32",
    ),
    "facebook/opt-125m": (opt(), "opt", "float16"),
    "facebook/opt-350m": (
        opt(
            do_layer_norm_before=False,
            ffn_dim=4096,
            hidden_size=1024,
            num_attention_heads=16,
            num_hidden_layers=24,
            word_embed_proj_dim=512,
        ),
        "opt",
        "float16",
    ),
    "facebook/opt-1.3b": (
        opt(
            _remove_final_layer_norm=False,
            ffn_dim=8192,
            hidden_size=2048,
            num_attention_heads=32,
            num_hidden_layers=24,
            word_embed_proj_dim=2048,
        ),
        "opt",
        "float16",
    ),
    "facebook/galactica-125m": (
        opt(
            activation_function="gelu",
            enable_bias=True,
            layer_norm_elementwise_affine=True,
            pad_token_id=1,
            bos_token_id=0,
            learned_embeddings=True,
            scale_embeddings=False,
            _remove_final_layer_norm=False,
        ),
        "fast",
        "float16",
    ),
    "facebook/galactica-1.3b": (
        opt(
            activation_function="gelu",
            enable_bias=False,
            layer_norm_elementwise_affine=False,
            bos_token_id=0,
        ),
        "fast",
        "float16",
    ),
    "EleutherAI/gpt-neox-20b": (
        neox(
            attention_probs_dropout_prob=0,
            hidden_act="gelu_fast",
            hidden_dropout_prob=0,
            hidden_size=6144,
            intermediate_size=24576,
            num_attention_heads=64,
            num_hidden_layers=44,
            vocab_size=50432,
        ),
        "fast",
        "float16",
    ),
    "EleutherAI/pythia-70m": (neox(), "fast", "float16"),
    "EleutherAI/pythia-12b": (
        neox(
            hidden_size=5120,
            intermediate_size=20480,
            num_attention_heads=40,
            num_hidden_layers=36,
            vocab_size=50688,
        ),
        "fast",
        "float16",
    ),
    "databricks/dolly-v2-3b": (
        neox(
            custom_pipelines={
                "text-generation": {
                    "impl": "instruct_pipeline.InstructionTextGenerationPipeline",
                    "pt": "AutoModelForCausalLM",
                }
            },
            hidden_size=2560,
            intermediate_size=10240,
            num_attention_heads=32,
            num_hidden_layers=32,
            torch_dtype="bfloat16",
            vocab_size=50280,
        ),
        "fast",
        "bfloat16",
    ),
    "stabilityai/stablelm-base-alpha-3b": (
        neox(
            hidden_size=4096,
            intermediate_size=16384,
            max_position_embeddings=4096,
            num_attention_heads=32,
            num_hidden_layers=16,
            vocab_size=50688,
        ),
        "fast",
        "float16",
    ),
    "togethercomputer/RedPajama-INCITE-Base-3B-v1": (
        neox(
            use_parallel_residual=False,
            rotary_pct=1.0,
            hidden_size=2560,
            intermediate_size=10240,
            num_attention_heads=32,
            num_hidden_layers=32,
            vocab_size=50432,
        ),
        "fast",
        "float16",
    ),
    "cyberagent/open-calm-small": (
        neox(
            use_parallel_residual=False,
            rotary_pct=1.0,
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
            num_hidden_layers=12,
            vocab_size=52096,
        ),
        "fast",
        "float16",
    ),
    "rinna/bilingual-gpt-neox-4b-8k": (
        neox(
            use_parallel_residual=False,
            rotary_pct=1.0,
            rope_scaling={"type": "linear", "factor": 4.0},
            max_position_embeddings=8192,
            bos_token_id=2,
            eos_token_id=3,
        ),
        "none",
        "float16",
    ),
    "huggyllama/llama-7b": (
        without(
            llama(
                max_position_embeddings=2048,
                max_sequence_length=2048,
                pad_token_id=0,
                rms_norm_eps=1e-06,
            ),
            "num_key_value_heads",
            "pretraining_tp",
            "rope_scaling",
        ),
        "llama2",
        "float16",
    ),
    "meta-llama/Llama-2-7b-hf": (
        llama(_name_or_path="meta-llama/Llama-2-7b-hf"),
        "llama2",
        "float16",
    ),
    "meta-llama/Llama-2-70b-hf": (
        llama(
            hidden_size=8192,
            intermediate_size=28672,
            num_attention_heads=64,
            num_hidden_layers=80,
            num_key_value_heads=8,
        ),
        "llama2",
        "float16",
    ),
    "meta-llama/Meta-Llama-3-8B": (llama3(), "llama3", "bfloat16"),
    "meta-llama/Llama-3.1-8B": (
        llama3(max_position_embeddings=131072, mlp_bias=False, rope_scaling=scaled(8.0)),
        "llama3",
        "bfloat16",
    ),
    "meta-llama/Llama-3.1-8B-Instruct": (
        llama3(
            max_position_embeddings=131072,
            mlp_bias=False,
            rope_scaling=scaled(8.0),
            eos_token_id=[128001, 128008, 128009],
        ),
        "llama3",
        "bfloat16",
    ),
    "meta-llama/Llama-3.2-1B": (
        llama3(
            head_dim=64,
            hidden_size=2048,
            intermediate_size=8192,
            max_position_embeddings=131072,
            mlp_bias=False,
            num_hidden_layers=16,
            rope_scaling=scaled(32.0),
            tie_word_embeddings=True,
        ),
        "llama3",
        "bfloat16",
    ),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": (
        llama(
            attention_bias=False,
            hidden_size=2048,
            intermediate_size=5632,
            max_position_embeddings=2048,
            num_hidden_layers=22,
            num_key_value_heads=4,
            rope_theta=10000.0,
            torch_dtype="bfloat16",
        ),
        "llama2",
        "bfloat16",
    ),
    "codellama/CodeLlama-7b-hf": (
        llama(
            max_position_embeddings=16384,
            rope_theta=1000000,
            torch_dtype="bfloat16",
            vocab_size=32016,
        ),
        "llama2",
        "bfloat16",
    ),
    "deepseek-ai/deepseek-coder-1.3b-base": (
        llama(
            bos_token_id=32013,
            eos_token_id=32014,
            hidden_size=2048,
            intermediate_size=5504,
            max_position_embeddings=16384,
            num_attention_heads=16,
            num_hidden_layers=24,
            num_key_value_heads=16,
            rms_norm_eps=1e-06,
            rope_scaling={"factor": 4.0, "type": "linear"},
            rope_theta=100000,
            torch_dtype="bfloat16",
            vocab_size=32256,
        ),
        "fast",
        "bfloat16",
    ),
    "HuggingFaceTB/SmolLM2-135M": (
        llama3(
            bos_token_id=0,
            eos_token_id=0,
            hidden_size=576,
            intermediate_size=1536,
            initializer_range=0.041666666666666664,
            is_llama_config=True,
            num_attention_heads=9,
            num_hidden_layers=30,
            num_key_value_heads=3,
            rope_interleaved=False,
            rope_theta=100000,
            tie_word_embeddings=True,
            vocab_size=49152,
        ),
        "gpt2",
        "bfloat16",
    ),
    "01-ai/Yi-6B": (
        llama(
            num_key_value_heads=4,
            pad_token_id=0,
            rope_theta=5000000.0,
            torch_dtype="bfloat16",
            vocab_size=64000,
        ),
        "llama2",
        "bfloat16",
    ),
    "tiiuae/Falcon3-1B-Base": (
        llama3(
            activation="swiglu",
            bos_token_id=None,
            eos_token_id=11,
            head_dim=256,
            hidden_size=2048,
            num_attention_heads=8,
            num_key_value_heads=4,
            mlp_bias=False,
            rms_norm_eps=1e-06,
            rope_theta=1000042,
            vocab_size=131072,
        ),
        "fast",
        "bfloat16",
    ),
    "NousResearch/Yarn-Llama-2-7b-64k": (
        llama(
            max_position_embeddings=65536,
            rope_scaling={
                "factor": 16.0,
                "finetuned": True,
                "type": "yarn",
                "original_max_position_embeddings": 4096,
            },
        ),
        "llama2",
        "bfloat16",
    ),
    "mistralai/Mistral-7B-v0.1": (mistral(), "llama2", "bfloat16"),
    "mistralai/Mistral-7B-v0.3": (
        mistral(attention_dropout=0.0, rope_theta=1000000.0, sliding_window=None, vocab_size=32768),
        "llama2",
        "bfloat16",
    ),
    "mistralai/Mistral-Nemo-Base-2407": (
        mistral(
            head_dim=128,
            hidden_size=5120,
            max_position_embeddings=131072,
            num_hidden_layers=40,
            rope_theta=1000000.0,
            sliding_window=None,
            vocab_size=131072,
        ),
        "llama3",
        "bfloat16",
    ),
    "HuggingFaceH4/zephyr-7b-beta": (
        mistral(_name_or_path="HuggingFaceH4/mistral-7b-sft-beta", pad_token_id=2),
        "llama2",
        "bfloat16",
    ),
    "mistralai/Ministral-8B-Instruct-2410": (
        mistral(
            head_dim=128,
            intermediate_size=12288,
            num_hidden_layers=36,
            rope_theta=100000000.0,
            sliding_window=32768,
            attention_dropout=0.0,
            vocab_size=131072,
        ),
        "llama3",
        "bfloat16",
    ),
    "Qwen/Qwen1.5-0.5B": (
        qwen2(
            hidden_size=1024,
            intermediate_size=2816,
            max_window_layers=21,
            num_attention_heads=16,
            num_key_value_heads=16,
        ),
        "qwen",
        "bfloat16",
    ),
    "Qwen/Qwen2.5-0.5B": (qwen2(), "qwen", "bfloat16"),
    "Qwen/Qwen2.5-7B-Instruct": (
        qwen2(
            eos_token_id=151645,
            hidden_size=3584,
            intermediate_size=18944,
            max_window_layers=28,
            num_attention_heads=28,
            num_key_value_heads=4,
            sliding_window=131072,
            tie_word_embeddings=False,
            vocab_size=152064,
        ),
        "qwen",
        "bfloat16",
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": (
        qwen2(
            bos_token_id=151646,
            hidden_size=1536,
            intermediate_size=8960,
            max_position_embeddings=131072,
            max_window_layers=21,
            num_attention_heads=12,
            rope_theta=10000,
            sliding_window=4096,
            tie_word_embeddings=False,
        ),
        "fast",
        "bfloat16",
    ),
    "Qwen/Qwen2.5-7B-Instruct, YaRN as its card says": (
        qwen2(
            rope_scaling={"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
        ),
        "qwen",
        "bfloat16",
    ),
    "Qwen/Qwen3-0.6B": (qwen3(), "qwen", "bfloat16"),
    "Qwen/Qwen3-8B": (
        qwen3(
            hidden_size=4096,
            intermediate_size=12288,
            max_window_layers=36,
            num_attention_heads=32,
            num_hidden_layers=36,
            tie_word_embeddings=False,
        ),
        "qwen",
        "bfloat16",
    ),
    "EleutherAI/gpt-neo-125m": (
        other("gpt_neo", "GPTNeoForCausalLM", num_layers=12, num_heads=12, window_size=256),
        "gpt2",
        "float32",
    ),
    "EleutherAI/gpt-j-6b": (
        other("gptj", "GPTJForCausalLM", n_embd=4096, rotary_dim=64),
        "gpt2",
        "float32",
    ),
    "bigscience/bloom-560m": (
        other("bloom", "BloomForCausalLM", n_layer=24, n_embed=1024),
        "fast",
        "float16",
    ),
    "tiiuae/falcon-7b": (
        other("falcon", "FalconForCausalLM", multi_query=True, parallel_attn=True),
        "fast",
        "bfloat16",
    ),
    "microsoft/phi-2": (
        other("phi", "PhiForCausalLM", partial_rotary_factor=0.4),
        "gpt2",
        "float16",
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        other("phi3", "Phi3ForCausalLM", sliding_window=2047),
        "llama2",
        "bfloat16",
    ),
    "google/gemma-2b": (other("gemma", "GemmaForCausalLM", head_dim=256), "llama2", "bfloat16"),
    "google/gemma-2-2b": (
        other("gemma2", "Gemma2ForCausalLM", attn_logit_softcapping=50.0),
        "llama2",
        "bfloat16",
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        other("mixtral", "MixtralForCausalLM", num_local_experts=8),
        "llama2",
        "bfloat16",
    ),
    "Qwen/Qwen3-30B-A3B": (
        other("qwen3_moe", "Qwen3MoeForCausalLM", num_experts=128),
        "qwen",
        "bfloat16",
    ),
    "stabilityai/stablelm-2-1_6b": (
        other("stablelm", "StableLmForCausalLM", partial_rotary_factor=0.25),
        "gpt2",
        "float16",
    ),
    "bigcode/starcoder2-3b": (
        other("starcoder2", "Starcoder2ForCausalLM", use_bias=True),
        "gpt2",
        "bfloat16",
    ),
    "allenai/OLMo-2-0425-1B": (other("olmo2", "Olmo2ForCausalLM"), "fast", "bfloat16"),
    "ibm-granite/granite-3.1-2b-base": (
        other("granite", "GraniteForCausalLM", residual_multiplier=0.22),
        "gpt2",
        "bfloat16",
    ),
    "deepseek-ai/DeepSeek-V3": (
        other("deepseek_v3", "DeepseekV3ForCausalLM", kv_lora_rank=512),
        "fast",
        "bfloat16",
    ),
    "openai/gpt-oss-20b": (
        other("gpt_oss", "GptOssForCausalLM", num_local_experts=32),
        "fast",
        "bfloat16",
    ),
    "baichuan-inc/Baichuan2-7B-Base": (
        other(
            "baichuan",
            "BaichuanForCausalLM",
            auto_map={"AutoModelForCausalLM": "modeling_baichuan.BaichuanForCausalLM"},
        ),
        "none",
        "bfloat16",
    ),
}
