// Checks of the operations inside a layer.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/check.h"
#include "trainer/ops/expect.h"

namespace ops {
namespace {

void check_dropout(Expect& e, const Dropout& dropout, int64_t columns) {
  if (dropout.p == 0) return;
  e.that(dropout.p > 0 && dropout.p < 1, "dropout p must be in 0 <= p < 1");
  e.that(columns > 0, "dropout needs columns");
  e.state("dropout.state", dropout.state);
}

}  // namespace

void check(const EmbeddingForward& a, Device device) {
  Expect e("embedding_forward", device);
  e.rank("x", a.x, 3);
  e.model_dtype("x", a.x);
  e.shape("tokens", a.tokens, DType::i32, {a.x.shape[0], a.x.shape[1]});
  if (a.token_table)
    e.shape("token_table", a.token_table, a.x.dtype, {a.token_table.rows(), a.x.shape[2]});
  if (a.position_table) {
    e.shape("position_table", a.position_table, a.x.dtype, {a.position_table.rows(), a.x.shape[2]});
    e.shape("positions", a.positions, DType::i32, {a.x.shape[0], a.x.shape[1]});
  }
  check_dropout(e, a.dropout, a.x.columns());
}

void check(const EmbeddingBackward& a, Device device) {
  Expect e("embedding_backward", device);
  e.rank("dx", a.dx, 3);
  e.model_dtype("dx", a.dx);
  e.shape("tokens", a.tokens, DType::i32, {a.dx.shape[0], a.dx.shape[1]});
  if (a.dtoken_table) {
    e.grad_dtype("dtoken_table", a.dtoken_table, a.dx.dtype);
    e.dims("dtoken_table", a.dtoken_table, {a.dtoken_table.rows(), a.dx.shape[2]});
  }
  if (a.dposition_table) {
    e.grad_dtype("dposition_table", a.dposition_table, a.dx.dtype);
    e.dims("dposition_table", a.dposition_table, {a.dposition_table.rows(), a.dx.shape[2]});
    e.shape("positions", a.positions, DType::i32, {a.dx.shape[0], a.dx.shape[1]});
  }
  check_dropout(e, a.dropout, a.dx.columns());
}

void check(const ResidualNormForward& a, Device device) {
  Expect e("residual_norm_forward", device);
  const Tensor& r = a.residual;
  e.rank("residual", r, 3);
  e.model_dtype("residual", r);
  e.that(bool(a.branch) == bool(a.residual_out), "branch and residual_out come together");
  if (a.branch) {
    e.like("branch", a.branch, r);
    e.like("residual_out", a.residual_out, r);
    if (a.branch_bias) e.shape("branch_bias", a.branch_bias, r.dtype, {r.shape[2]});
    check_dropout(e, a.dropout, r.columns());
  }
  if (!a.y) return;
  e.like("y", a.y, r);
  e.shape("weight", a.weight, r.dtype, {r.shape[2]});
  if (a.bias) e.shape("bias", a.bias, r.dtype, {r.shape[2]});
  if (a.mean) e.shape("mean", a.mean, DType::f32, {r.shape[0], r.shape[1]});
  if (a.rstd) e.shape("rstd", a.rstd, DType::f32, {r.shape[0], r.shape[1]});
}

void check(const ResidualNormBackward& a, Device device) {
  Expect e("residual_norm_backward", device);
  const Tensor& d = a.dresidual;
  e.rank("dresidual", d, 3);
  e.model_dtype("dresidual", d);
  if (a.dresidual_out) e.like("dresidual_out", a.dresidual_out, d);
  if (a.dbranch) {
    e.like("dbranch", a.dbranch, d);
    check_dropout(e, a.dropout, d.columns());
  }
  e.that(a.dy || a.dresidual_out, "dy or dresidual_out must be given");
  e.that(a.dy || !a.dbranch_bias, "dbranch_bias needs dy");
  if (!a.dy) return;
  e.like("dy", a.dy, d);
  e.like("x", a.x, d);
  e.shape("weight", a.weight, d.dtype, {d.shape[2]});
  e.shape("rstd", a.rstd, DType::f32, {d.shape[0], d.shape[1]});
  if (a.norm == Norm::layernorm) e.shape("mean", a.mean, DType::f32, {d.shape[0], d.shape[1]});
  e.grad_dtype("dweight", a.dweight, d.dtype);
  e.dims("dweight", a.dweight, {d.shape[2]});
  if (a.dbias) {
    e.grad_dtype("dbias", a.dbias, d.dtype);
    e.dims("dbias", a.dbias, {d.shape[2]});
  }
  if (!a.dbranch_bias) return;
  e.grad_dtype("dbranch_bias", a.dbranch_bias, d.dtype);
  e.dims("dbranch_bias", a.dbranch_bias, {d.shape[2]});
}

void check(const LinearForward& a, Device device) {
  Expect e("linear_forward", device);
  e.model_dtype("x", a.x);
  e.rank("weight", a.weight, 2);
  e.matrix("x", a.x, a.x.dtype, a.x.rows(), a.weight.shape[1]);
  e.matrix("weight", a.weight, a.x.dtype, a.weight.shape[0], a.weight.shape[1]);
  e.that(a.y.dtype == DType::f32 || a.y.dtype == a.x.dtype, "y must be of the model dtype or fp32");
  e.matrix("y", a.y, a.y.dtype, a.x.rows(), a.weight.shape[0]);
  if (a.pre_activation)
    e.matrix("pre_activation", a.pre_activation, a.y.dtype, a.x.rows(), a.weight.shape[0]);
  if (a.bias) e.shape("bias", a.bias, a.x.dtype, {a.weight.shape[0]});
  if (a.addend) e.matrix("addend", a.addend, a.y.dtype, a.x.rows(), a.weight.shape[0]);
  e.that(!a.addend || a.activation == Activation::none, "addend excludes an activation");
  e.that(a.activation != Activation::swiglu, "swiglu is not an epilogue: use activation_forward");
}

void check(const LinearBackwardInput& a, Device device) {
  Expect e("linear_backward_input", device);
  e.model_dtype("dy", a.dy);
  e.rank("weight", a.weight, 2);
  e.matrix("dy", a.dy, a.dy.dtype, a.dy.rows(), a.weight.shape[0]);
  e.matrix("weight", a.weight, a.dy.dtype, a.weight.shape[0], a.weight.shape[1]);
  e.matrix("dx", a.dx, a.dy.dtype, a.dy.rows(), a.weight.shape[1]);
  const bool activation = a.activation != Activation::none;
  e.that(a.activation != Activation::swiglu, "swiglu is not an epilogue: use activation_backward");
  if (activation)
    e.matrix("pre_activation", a.pre_activation, a.dy.dtype, a.dy.rows(), a.weight.shape[1]);
  if (a.dbias) {
    e.grad_dtype("dbias", a.dbias, a.dy.dtype);
    e.dims("dbias", a.dbias, {a.weight.shape[1]});
  }
  if (a.addend) e.matrix("addend", a.addend, a.dy.dtype, a.dy.rows(), a.weight.shape[1]);
  e.that(!a.addend || (!activation && !a.dbias), "addend excludes an activation and dbias");
}

void check(const LinearBackwardWeight& a, Device device) {
  Expect e("linear_backward_weight", device);
  e.model_dtype("dy", a.dy);
  e.that(a.dweight || a.dbias, "dweight or dbias must be given");
  if (a.dweight) {
    e.grad_dtype("dweight", a.dweight, a.dy.dtype);
    e.rank("dweight", a.dweight, 2);
    e.dims("dweight", a.dweight, {a.dy.columns(), a.x.columns()});
    e.matrix("x", a.x, a.dy.dtype, a.dy.rows(), a.x.columns());
  }
  if (a.dbias) {
    e.grad_dtype("dbias", a.dbias, a.dy.dtype);
    e.dims("dbias", a.dbias, {a.dy.columns()});
  }
  e.matrix("dy", a.dy, a.dy.dtype, a.dy.rows(), a.dy.columns());
}

void check(const ActivationForward& a, Device device) {
  Expect e("activation_forward", device);
  e.model_dtype("x", a.x);
  const int64_t columns = a.activation == Activation::swiglu ? a.x.columns() / 2 : a.x.columns();
  e.that(a.activation != Activation::swiglu || a.x.columns() % 2 == 0, "swiglu needs even columns");
  e.matrix("x", a.x, a.x.dtype, a.x.rows(), a.x.columns());
  e.matrix("y", a.y, a.x.dtype, a.x.rows(), columns);
}

void check(const ActivationBackward& a, Device device) {
  Expect e("activation_backward", device);
  e.model_dtype("x", a.x);
  const int64_t columns = a.activation == Activation::swiglu ? a.x.columns() / 2 : a.x.columns();
  e.matrix("x", a.x, a.x.dtype, a.x.rows(), a.x.columns());
  e.matrix("dx", a.dx, a.x.dtype, a.x.rows(), a.x.columns());
  e.matrix("dy", a.dy, a.x.dtype, a.x.rows(), columns);
}

namespace {

void check_packed(Expect& e, const AttentionShape& s, const char* what, const Tensor& qkv) {
  e.that(s.num_query_groups > 0 && s.num_attention_heads % s.num_query_groups == 0,
         "num_query_groups must divide num_attention_heads");
  e.rank(what, qkv, 3);
  e.model_dtype(what, qkv);
  e.dims(what, qkv,
         {qkv.shape[0], qkv.shape[1],
          (s.num_attention_heads + 2 * s.num_query_groups) * s.kv_channels});
}

}  // namespace

void check(const Rotary& a, Device device) {
  Expect e("rotary", device);
  e.rank("qkv", a.qkv, 3);
  e.model_dtype("qkv", a.qkv);
  const int64_t heads = a.num_attention_heads + 2 * a.num_query_groups;
  e.that(heads > 0 && a.qkv.shape[2] % heads == 0, "heads must divide the columns of qkv");
  e.shape("positions", a.positions, DType::i32, {a.qkv.shape[0], a.qkv.shape[1]});
  e.rank("cosine", a.cosine, 2);
  e.that(2 * a.cosine.shape[1] <= a.qkv.shape[2] / heads,
         "more rotated dimensions than kv_channels");
  e.shape("sine", a.sine, DType::f32, {a.cosine.shape[0], a.cosine.shape[1]});
  e.shape("cosine", a.cosine, DType::f32, {a.cosine.shape[0], a.cosine.shape[1]});
}

void check(const AttentionForward& a, Device device) {
  Expect e("attention_forward", device);
  check_packed(e, a.shape, "qkv", a.qkv);
  const int64_t s = a.qkv.shape[0], b = a.qkv.shape[1], n = a.shape.num_attention_heads;
  e.shape("out", a.out, a.qkv.dtype, {s, b, n * a.shape.kv_channels});
  if (a.stats) e.shape("stats", a.stats, DType::f32, {b, n, s});
  if (a.first_key) e.shape("first_key", a.first_key, DType::i32, {s, b});
  check_dropout(e, a.dropout, s);
}

void check(const AttentionBackward& a, Device device) {
  Expect e("attention_backward", device);
  check_packed(e, a.shape, "qkv", a.qkv);
  const int64_t s = a.qkv.shape[0], b = a.qkv.shape[1], n = a.shape.num_attention_heads;
  e.like("dqkv", a.dqkv, a.qkv);
  e.shape("out", a.out, a.qkv.dtype, {s, b, n * a.shape.kv_channels});
  e.like("dout", a.dout, a.out);
  e.shape("stats", a.stats, DType::f32, {b, n, s});
  if (a.first_key) e.shape("first_key", a.first_key, DType::i32, {s, b});
  check_dropout(e, a.dropout, s);
}

void check(const AttentionDecode& a, Device device) {
  Expect e("attention_decode", device);
  check_packed(e, a.shape, "qkv", a.qkv);
  const int64_t s = a.qkv.shape[0], b = a.qkv.shape[1];
  e.shape("out", a.out, a.qkv.dtype, {s, b, a.shape.num_attention_heads * a.shape.kv_channels});
  e.rank("key_cache", a.key_cache, 3);
  e.shape("key_cache", a.key_cache, a.qkv.dtype,
          {a.key_cache.shape[0], b, a.shape.num_query_groups * a.shape.kv_channels});
  e.like("value_cache", a.value_cache, a.key_cache);
  e.that(a.cached >= 0 && a.cached + s <= a.key_cache.shape[0], "the cache is too short");
}

}  // namespace ops
