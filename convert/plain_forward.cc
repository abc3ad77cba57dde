// SPDX-License-Identifier: MIT
// plain_forward.h.
#include "convert/plain_forward.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "libindexed/format.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace convert {
namespace {

using ops::Tensor;

// A tensor that owns its memory.
struct Matrix {
  std::vector<float> memory;
  Tensor view;

  Matrix(int64_t rows, int64_t columns) : memory(static_cast<size_t>(rows * columns)) {
    view = Tensor(memory.data(), ops::DType::f32, ops::Device::cpu, {rows, 1, columns});
  }
  Tensor rows() const { return view.view({view.shape[0], view.shape[2]}); }
};

class Forward {
 public:
  Forward(const CanonicalModel& model, std::span<const int32_t> tokens, QkvRoad road)
      : model_(model),
        spec_(model.spec),
        tokens_(tokens.begin(), tokens.end()),
        road_(road),
        cpu_(static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))),
        length_(static_cast<int64_t>(tokens.size())),
        x_(length_, spec_.hidden_size) {}

  std::vector<float> run() {
    embed();
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
      spec_.post_norm ? post_norm_block(layer) : block(layer);
    }
    Matrix normed = spec_.post_norm ? std::move(x_) : norm("decoder.final_layernorm");
    if (spec_.projects_embeddings()) {
      Matrix narrow(length_, spec_.embedding_size);
      linear(narrow, normed, "project_out", ops::Activation::none, false);
      normed = std::move(narrow);
    }
    Matrix logits(length_, spec_.padded_vocab_size);
    linear(logits, normed, spec_.tied_embeddings ? "embedding.word_embeddings" : "output_layer",
           ops::Activation::none, false);
    return std::move(logits.memory);
  }

 private:
  // Weights are valid until the next call of the operation that uses them.
  Tensor weight(const std::string& name, std::vector<float>& memory) {
    const TensorSource& source = model_.at(name);
    memory = to_floats(source.dtype, source.load().data(), source.elements());
    if (source.shape.size() == 1)
      return Tensor(memory.data(), ops::DType::f32, ops::Device::cpu, {source.shape[0]});
    return Tensor(memory.data(), ops::DType::f32, ops::Device::cpu,
                  {source.shape[0], source.shape[1]});
  }

  void embed() {
    std::vector<float> words;
    std::vector<int32_t> positions(tokens_.size());
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) + spec_.position_offset);
    Matrix narrow(spec_.projects_embeddings() ? length_ : 0, spec_.embedding_columns());
    ops::EmbeddingForward args;
    args.x = spec_.projects_embeddings() ? narrow.view : x_.view;
    args.tokens = Tensor(tokens_.data(), ops::DType::i32, ops::Device::cpu, {length_, 1});
    args.token_table = weight("embedding.word_embeddings.weight", words);
    if (spec_.projects_embeddings()) {
      cpu_.run(args);
      linear(x_, narrow, "embedding.project_in", ops::Activation::none, false);
      Matrix at(length_, spec_.hidden_size);
      args.x = at.view;
      args.token_table = {};
      embed_positions(args, positions);
      add(at);
      return;
    }
    embed_positions(args, positions);
  }

  void embed_positions(ops::EmbeddingForward args, std::vector<int32_t>& positions) {
    std::vector<float> places;
    if (spec_.position == trainer::Position::learned) {
      args.positions = Tensor(positions.data(), ops::DType::i32, ops::Device::cpu, {length_, 1});
      args.position_table = weight("embedding.position_embeddings.weight", places);
    }
    cpu_.run(args);
  }

  Matrix norm(const std::string& name) {
    Matrix y(length_, spec_.hidden_size);
    std::vector<float> scale, shift;
    ops::ResidualNormForward args;
    args.norm = spec_.norm;
    args.eps = spec_.norm_epsilon;
    args.y = y.view;
    args.residual = x_.view;
    args.weight = weight(name + ".weight", scale);
    if (spec_.norm == ops::Norm::layernorm) args.bias = weight(name + ".bias", shift);
    cpu_.run(args);
    return y;
  }

  void linear(Matrix& y, const Matrix& x, const std::string& name, ops::Activation activation,
              bool biased) {
    std::vector<float> matrix, vector;
    ops::LinearForward args;
    args.y = y.rows();
    args.x = x.rows();
    args.weight = weight(name + ".weight", matrix);
    if (biased) args.bias = weight(name + ".bias", vector);
    args.activation = activation;
    cpu_.run(args);
  }

  Matrix layer_linear(const Matrix& x, int64_t layer, const char* name, int64_t out,
                      ops::Activation activation = ops::Activation::none) {
    Matrix y(length_, out);
    const std::string full = layer_name(layer, name);
    linear(y, x, full, activation, model_.tensors.contains(full + ".bias"));
    return y;
  }

  // One weight with rows in packed order, made here so that the order is the file's.
  Matrix qkv_fused(const Matrix& x, int64_t layer) {
    const QkvShape shape{spec_.num_attention_heads, spec_.num_query_groups, spec_.kv_channels};
    CanonicalModel fused;
    for (const char* end : {"weight", "bias"}) {
      if (std::strcmp(end, "bias") == 0 && !spec_.has_qkv_bias()) continue;
      const auto part = [&](const char* name) {
        return model_.at(
            layer_name(layer, std::string("self_attention.linear_") + name + "." + end));
      };
      fused.tensors[std::string("qkv.") + end] = join_qkv(part("q"), part("k"), part("v"), shape);
    }
    Matrix y(length_, shape.rows());
    std::vector<float> matrix, vector;
    const auto load = [&](const char* name, std::vector<float>& memory) {
      const TensorSource& source = fused.at(name);
      memory = to_floats(source.dtype, source.load().data(), source.elements());
    };
    load("qkv.weight", matrix);
    ops::LinearForward args;
    args.y = y.rows();
    args.x = x.rows();
    args.weight =
        Tensor(matrix.data(), ops::DType::f32, ops::Device::cpu, {shape.rows(), spec_.hidden_size});
    if (spec_.has_qkv_bias()) {
      load("qkv.bias", vector);
      args.bias = Tensor(vector.data(), ops::DType::f32, ops::Device::cpu, {shape.rows()});
    }
    cpu_.run(args);
    return y;
  }

  // Three weights; their outputs are placed side by side, head by head.
  Matrix qkv_apart(const Matrix& x, int64_t layer) {
    const int64_t d = spec_.kv_channels, groups = spec_.num_query_groups;
    const int64_t per_group = spec_.num_attention_heads / groups;
    const Matrix q = layer_linear(x, layer, "self_attention.linear_q", groups * per_group * d);
    const Matrix k = layer_linear(x, layer, "self_attention.linear_k", groups * d);
    const Matrix v = layer_linear(x, layer, "self_attention.linear_v", groups * d);
    Matrix packed(length_, spec_.qkv_size());
    const auto copy = [&](const Matrix& from, int64_t row, int64_t head, float* to) {
      std::memcpy(to, from.memory.data() + row * from.view.shape[2] + head * d,
                  static_cast<size_t>(d) * sizeof(float));
    };
    for (int64_t row = 0; row < length_; ++row)
      for (int64_t g = 0; g < groups; ++g) {
        float* to = packed.memory.data() + row * spec_.qkv_size() + g * (per_group + 2) * d;
        for (int64_t j = 0; j < per_group; ++j) copy(q, row, g * per_group + j, to + j * d);
        copy(k, row, g, to + per_group * d);
        copy(v, row, g, to + (per_group + 1) * d);
      }
    return packed;
  }

  // OPT-350m's block: each branch is added, then normed. The norm after the second branch has the
  // name of the next layer's input norm, or of the final norm.
  void post_norm_block(int64_t layer) {
    add(attention(x_, layer));
    x_ = norm(layer_name(layer, "pre_mlp_layernorm"));
    add(layer_linear(mlp_inner(x_, layer), layer, "mlp.linear_fc2", spec_.hidden_size));
    x_ = norm(layer + 1 < spec_.num_layers ? layer_name(layer + 1, "input_layernorm")
                                           : "decoder.final_layernorm");
  }

  Matrix attention(const Matrix& x, int64_t layer) {
    Matrix qkv = road_ == QkvRoad::fused ? qkv_fused(x, layer) : qkv_apart(x, layer);
    if (spec_.qk_norm) norm_heads(qkv, layer);
    if (spec_.position == trainer::Position::rotary) rotate(qkv);
    Matrix mixed(length_, spec_.num_attention_heads * spec_.kv_channels);
    ops::AttentionForward args;
    args.shape = {spec_.num_attention_heads, spec_.num_query_groups, spec_.kv_channels,
                  1.0F / std::sqrt(static_cast<float>(spec_.kv_channels)), true};
    args.out = mixed.view;
    args.qkv = qkv.view;
    std::vector<int32_t> first_key(tokens_.size());
    for (int64_t p = spec_.sliding_window; spec_.sliding_window > 0 && p < length_; ++p)
      first_key[static_cast<size_t>(p)] = static_cast<int32_t>(p - spec_.sliding_window + 1);
    if (spec_.sliding_window > 0)
      args.first_key = Tensor(first_key.data(), ops::DType::i32, ops::Device::cpu, {length_, 1});
    cpu_.run(args);
    return layer_linear(mixed, layer, "self_attention.linear_proj", spec_.hidden_size);
  }

  void block(int64_t layer) {
    const Matrix branch = attention(norm(layer_name(layer, "input_layernorm")), layer);
    if (!spec_.parallel_residual) add(branch);
    const Matrix second = norm(layer_name(layer, "pre_mlp_layernorm"));
    if (spec_.parallel_residual) add(branch);
    add(layer_linear(mlp_inner(second, layer), layer, "mlp.linear_fc2", spec_.hidden_size));
  }

  // Norms of each q and k head by the textbook formula, in double.
  void norm_heads(Matrix& qkv, int64_t layer) {
    const int64_t d = spec_.kv_channels, groups = spec_.num_query_groups;
    const int64_t per_group = spec_.num_attention_heads / groups + 2;
    const bool centered = spec_.norm == ops::Norm::layernorm;
    std::vector<float> scale[2], shift[2];
    for (const size_t key : {0U, 1U}) {
      const std::string name =
          layer_name(layer, key ? "self_attention.k_layernorm" : "self_attention.q_layernorm");
      weight(name + ".weight", scale[key]);
      if (centered) weight(name + ".bias", shift[key]);
    }
    for (int64_t head = 0; head < length_ * groups * per_group; ++head) {
      const int64_t slot = head % per_group;
      if (slot == per_group - 1) continue;  // a value
      const size_t key = slot == per_group - 2;
      float* x = qkv.memory.data() + head * d;
      double mean = 0, variance = 0;
      for (int64_t c = 0; centered && c < d; ++c) mean += x[c] / static_cast<double>(d);
      for (int64_t c = 0; c < d; ++c)
        variance += (x[c] - mean) * (x[c] - mean) / static_cast<double>(d);
      const double rstd = 1 / std::sqrt(variance + static_cast<double>(spec_.norm_epsilon));
      for (int64_t c = 0; c < d; ++c) {
        const size_t at = static_cast<size_t>(c);
        x[c] = static_cast<float>((x[c] - mean) * rstd) * scale[key][at] +
               (centered ? shift[key][at] : 0.0F);
      }
    }
  }

  // The angle by which pair i rotates per position: base^(-2i / rotary_dim), or less if positions
  // are scaled. Llama 3 scales by wavelength: one of at most original / high is unchanged, one of
  // original / low and more is stretched by the whole factor.
  double turn_of(int64_t i, int64_t half) const {
    const double turn = std::pow(static_cast<double>(spec_.rotary_base),
                                 -static_cast<double>(i) / static_cast<double>(half)) /
                        static_cast<double>(spec_.rotary_interpolation);
    if (!spec_.rotary_scaling) return turn;
    const double wave = 2 * std::acos(-1.0) / turn;
    const double original = static_cast<double>(spec_.rotary_original_positions);
    const double low = spec_.rotary_low_freq_factor, high = spec_.rotary_high_freq_factor;
    if (wave < original / high) return turn;
    if (wave > original / low) return turn / spec_.rotary_scaling_factor;
    const double smooth = (original / wave - low) / (high - low);
    return turn / spec_.rotary_scaling_factor * (1 - smooth) + turn * smooth;
  }

  // Angle of pair i at position p: p * turn_of(i).
  void rotate(Matrix& qkv) {
    const int64_t half = spec_.rotary_dim() / 2;
    std::vector<float> cosine(static_cast<size_t>(length_ * half)), sine(cosine.size());
    std::vector<int32_t> positions(tokens_.size());
    for (int64_t p = 0; p < length_; ++p) {
      positions[static_cast<size_t>(p)] = static_cast<int32_t>(p);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * turn_of(i, half);
        cosine[static_cast<size_t>(p * half + i)] = static_cast<float>(std::cos(angle));
        sine[static_cast<size_t>(p * half + i)] = static_cast<float>(std::sin(angle));
      }
    }
    ops::Rotary args;
    args.qkv = qkv.view;
    args.positions = Tensor(positions.data(), ops::DType::i32, ops::Device::cpu, {length_, 1});
    args.cosine = Tensor(cosine.data(), ops::DType::f32, ops::Device::cpu, {length_, half});
    args.sine = Tensor(sine.data(), ops::DType::f32, ops::Device::cpu, {length_, half});
    args.num_attention_heads = spec_.num_attention_heads;
    args.num_query_groups = spec_.num_query_groups;
    cpu_.run(args);
  }

  Matrix mlp_inner(const Matrix& x, int64_t layer) {
    if (!spec_.gated())
      return layer_linear(x, layer, "mlp.linear_fc1", spec_.ffn_hidden_size, spec_.activation);
    Matrix gate = layer_linear(x, layer, "mlp.linear_gate", spec_.ffn_hidden_size);
    const Matrix up = layer_linear(x, layer, "mlp.linear_up", spec_.ffn_hidden_size);
    for (size_t i = 0; i < gate.memory.size(); ++i)
      gate.memory[i] *= up.memory[i] / (1.0F + std::exp(-gate.memory[i]));
    return gate;
  }

  void add(const Matrix& branch) {
    for (size_t i = 0; i < x_.memory.size(); ++i) x_.memory[i] += branch.memory[i];
  }

  const CanonicalModel& model_;
  const trainer::ModelSpec& spec_;
  std::vector<int32_t> tokens_;
  QkvRoad road_;
  ops::cpu::CpuOps cpu_;
  int64_t length_;
  Matrix x_;
};

}  // namespace

std::vector<float> plain_forward(const CanonicalModel& model, std::span<const int32_t> tokens,
                                 QkvRoad road) {
  const trainer::ModelSpec& spec = model.spec;
  if (tokens.empty() || static_cast<int64_t>(tokens.size()) > spec.max_position_embeddings)
    throw indexed::FormatError("a text of " + std::to_string(tokens.size()) +
                               " tokens, expected 1 to " +
                               std::to_string(spec.max_position_embeddings));
  for (const int32_t token : tokens)
    if (token < 0 || token >= spec.padded_vocab_size)
      throw indexed::FormatError("token " + std::to_string(token) +
                                 " is not in the vocabulary of " +
                                 std::to_string(spec.padded_vocab_size));
  return Forward(model, tokens, road).run();
}

}  // namespace convert
