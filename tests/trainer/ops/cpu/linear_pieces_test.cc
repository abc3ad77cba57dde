// Linears whose weight lies in pieces give bit for bit what the weight in one piece gives.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"

namespace {

using namespace ops;

/// q, k and v of packed heads: the outputs of each, in the order of files.
struct Heads {
  int64_t heads, groups, size;
  int64_t outputs() const { return (heads + 2 * groups) * size; }
};

/// A linear's tensors, and its weight in pieces: q, k, v, each with its heads' outputs.
class Packed {
 public:
  Packed(const Heads& heads, int64_t rows, int64_t inputs, DType dtype, bool transposed)
      : heads_(heads), rows_(rows), inputs_(inputs), dtype_(dtype), transposed_(transposed) {
    std::mt19937 random(static_cast<uint32_t>(rows + inputs));
    std::normal_distribution<float> normal;
    for (std::vector<float>* numbers : {&x_, &weight_, &bias_}) {
      const int64_t count = numbers == &x_        ? rows * inputs
                            : numbers == &weight_ ? heads.outputs() * inputs
                                                  : heads.outputs();
      for (int64_t i = 0; i < count; ++i) numbers->push_back(normal(random));
    }
    for (float& w : weight_) w = bf16_to_float(float_to_bf16(w));
    place();
  }

  std::vector<float> run(cpu::CpuOps& cpu, bool in_pieces, bool bias, Activation activation,
                         std::vector<float>* pre = nullptr) {
    const int64_t n = heads_.outputs();
    std::vector<float> y(static_cast<size_t>(rows_ * n), NAN), before = y;
    const Tensor weight = in_pieces ? tensor(file_, transposed_) : tensor(whole_, false);
    cpu.run(LinearForward{
        .y = {y.data(), DType::f32, Device::cpu, {rows_, n}},
        .pre_activation =
            pre ? Tensor(before.data(), DType::f32, Device::cpu, {rows_, n}) : Tensor(),
        .x = {x_.data(), DType::f32, Device::cpu, {rows_, inputs_}},
        .weight = weight,
        .bias = bias ? Tensor(bias_.data(), DType::f32, Device::cpu, {n}) : Tensor(),
        .addend = {},
        .activation = activation,
        .weight_is_transposed = in_pieces && transposed_,
        .pieces =
            in_pieces ? std::span<const WeightPiece>(pieces_) : std::span<const WeightPiece>()});
    if (pre) *pre = before;
    return y;
  }

  std::vector<WeightPiece>& pieces() { return pieces_; }

 private:
  Tensor tensor(std::vector<std::byte>& bytes, bool transposed) const {
    const int64_t n = heads_.outputs();
    if (transposed) return {bytes.data(), dtype_, Device::cpu, {inputs_, n}};
    return {bytes.data(), dtype_, Device::cpu, {n, inputs_}};
  }

  void put(std::vector<std::byte>& to, int64_t at, float number) const {
    const uint16_t narrow = float_to_bf16(number);
    const void* from = dtype_ == DType::bf16 ? static_cast<const void*>(&narrow) : &number;
    const int64_t size = size_bytes(dtype_);
    std::memcpy(to.data() + at * size, from, static_cast<size_t>(size));
  }

  // whole_ has the outputs in order. file_ has those of q, k and v one after another, as rows with
  // a gap behind v, or as columns with a gap behind each row.
  void place() {
    const int64_t n = heads_.outputs(), size = size_bytes(dtype_),
                  per = heads_.heads / heads_.groups;
    std::vector<int64_t> order;  // of the file
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t head = 0; head < (part == 0 ? heads_.heads : heads_.groups); ++head) {
        const int64_t group = part == 0 ? head / per : head;
        const int64_t slot = part == 0 ? head % per : per + part - 1;
        order.push_back((group * (per + 2) + slot) * heads_.size);
      }
    const int64_t row = transposed_ ? n + 3 : inputs_;
    whole_.resize(static_cast<size_t>(n * inputs_ * size));
    file_.assign(static_cast<size_t>((n + 3) * inputs_ * size), std::byte{0x7F});
    for (int64_t i = 0; i < n * inputs_; ++i) put(whole_, i, weight_[static_cast<size_t>(i)]);
    int64_t place = 0;
    for (const int64_t first : order) {
      for (int64_t o = 0; o < heads_.size; ++o)
        for (int64_t k = 0; k < inputs_; ++k)
          put(file_, transposed_ ? k * row + place + o : (place + o) * row + k,
              weight_[static_cast<size_t>((first + o) * inputs_ + k)]);
      const int64_t begin = transposed_ ? place : place * row;
      pieces_.push_back({file_.data() + begin * size, first, heads_.size, row});
      place += heads_.size;
    }
  }

  Heads heads_;
  int64_t rows_, inputs_;
  DType dtype_;
  bool transposed_;
  std::vector<float> x_, weight_, bias_;
  std::vector<std::byte> whole_, file_;
  std::vector<WeightPiece> pieces_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(LinearPieces, GiveTheBitsOfTheWholeWeight) {
  for (const int threads : {1, 3})
    for (const Heads& heads : {Heads{25, 25, 8}, Heads{6, 2, 20}, Heads{4, 1, 33}, Heads{1, 1, 5}})
      for (const int64_t rows : {1, 2, 3, 4, 17, 70, 515})
        for (const DType dtype : {DType::f32, DType::bf16})
          for (const bool transposed : {false, true}) {
            cpu::CpuOps cpu(threads);
            Packed linear(heads, rows, 75, dtype, transposed);
            for (const bool bias : {false, true})
              ASSERT_TRUE(same_bits(linear.run(cpu, true, bias, Activation::none),
                                    linear.run(cpu, false, bias, Activation::none)))
                  << heads.heads << " heads, " << rows << " rows, " << name(dtype)
                  << ", transposed " << transposed << ", bias " << bias;
          }
}

// Pieces in any order, and those that are no neighbours in the list though they are in memory.
TEST(LinearPieces, NoBitDependsOnTheirOrder) {
  cpu::CpuOps cpu(2);
  for (const int64_t rows : {2, 40})
    for (const bool transposed : {false, true}) {
      Packed linear({6, 2, 20}, rows, 75, DType::bf16, transposed);
      const std::vector<float> wanted = linear.run(cpu, false, true, Activation::none);
      std::ranges::reverse(linear.pieces());
      EXPECT_TRUE(same_bits(linear.run(cpu, true, true, Activation::none), wanted));
      std::ranges::sort(linear.pieces(), {}, &WeightPiece::first);  // the outputs' order
      EXPECT_TRUE(same_bits(linear.run(cpu, true, true, Activation::none), wanted));
    }
}

TEST(LinearPieces, ActivationsAndWhatIsBeforeThem) {
  cpu::CpuOps cpu(2);
  for (const int64_t rows : {1, 40}) {
    Packed linear({6, 2, 20}, rows, 75, DType::bf16, true);
    std::vector<float> is, wanted;
    const std::vector<float> y = linear.run(cpu, true, true, Activation::relu, &is);
    EXPECT_TRUE(same_bits(y, linear.run(cpu, false, true, Activation::relu, &wanted)));
    EXPECT_TRUE(same_bits(is, wanted));
    EXPECT_FALSE(same_bits(is, y));
  }
}

TEST(LinearPieces, EachOutputMustBeInOnePiece) {
  cpu::CpuOps cpu(1);
  const auto refused = [&](auto change) {
    Packed linear({4, 4, 3}, 2, 10, DType::bf16, true);
    change(linear.pieces());
    EXPECT_THROW(linear.run(cpu, true, false, Activation::none), ShapeError);
  };
  using Pieces = std::vector<WeightPiece>;
  refused([](Pieces& pieces) { pieces.pop_back(); });
  refused([](Pieces& pieces) { pieces[0].first = -1; });
  refused([](Pieces& pieces) { pieces[0].first = 34; });
  refused([](Pieces& pieces) { pieces[0].outputs = 0; });
  refused([](Pieces& pieces) { pieces[0].data = nullptr; });
  refused([](Pieces& pieces) { pieces[0].row = 2; });
  refused([](Pieces& pieces) { pieces.push_back(pieces.back()); });
}

}  // namespace
