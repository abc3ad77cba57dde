// SPDX-License-Identifier: MIT
// Generator, index arrays and blending against digests of real numpy and megatron-core arrays, and
// against the reference's own loop, written plainly here, on random lengths.
#include "libindexed/sample_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "libindexed/builder.h"
#include "libindexed/md5.h"
#include "libindexed/numpy_random.h"
#include "tests/indexed/scratch.h"

namespace indexed {
namespace {

using testing::ElementsAre;

template <class T>
std::string md5_of(const std::vector<T>& values) {
  return md5_hex(std::as_bytes(std::span(values)));
}

std::vector<int64_t> values_of(const IndexArray& array) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < array.size(); ++i) out.push_back(array[i]);
  return out;
}

template <class T>
std::vector<T> shuffled(uint32_t seed, size_t n) {
  std::vector<T> values(n);
  std::iota(values.begin(), values.end(), T{0});
  RandomState(seed).shuffle(std::span<T>(values));
  return values;
}

TEST(Md5, KnownValues) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(
      md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
      "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(RandomState, RawOutputs) {
  const auto first = [](uint32_t seed) {
    RandomState random(seed);
    return std::vector<uint32_t>{random.next(), random.next(), random.next(), random.next()};
  };
  EXPECT_THAT(first(1234), ElementsAre(822569775u, 2137449171u, 2671936806u, 3512589365u));
  EXPECT_THAT(first(0), ElementsAre(2357136044u, 2546248239u, 3071714933u, 3626093760u));
  EXPECT_THAT(first(42), ElementsAre(1608637542u, 3421126067u, 4083286876u, 787846414u));
  RandomState ours(987654321);
  std::mt19937 standard(987654321);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(ours.next(), standard());
}

TEST(RandomState, Shuffles) {
  EXPECT_THAT(shuffled<int64_t>(1234, 10), ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  EXPECT_THAT(shuffled<int32_t>(0, 10), ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5));
  EXPECT_THAT(shuffled<uint32_t>(4294967295u, 10), ElementsAre(6, 9, 5, 1, 8, 0, 7, 4, 2, 3));
  EXPECT_THAT(shuffled<int64_t>(1234, 16),
              ElementsAre(13, 11, 0, 12, 14, 2, 10, 7, 1, 9, 8, 4, 5, 6, 3, 15));
  EXPECT_THAT(shuffled<int64_t>(1234, 2), ElementsAre(0, 1));
  EXPECT_THAT(shuffled<int64_t>(1234, 0), ElementsAre());
  EXPECT_EQ(md5_of(shuffled<int64_t>(1234, 100)), "c856b9375f3870f50e0031b7e3ce165a");
  EXPECT_EQ(md5_of(shuffled<int32_t>(1234, 1000)), "3f4f15eb6f685b404530b9069180aa76");
  EXPECT_EQ(md5_of(shuffled<uint32_t>(1234, 100000)), "2ad4779164df2ff9a3d5a8f018cd1b3c");
  EXPECT_EQ(md5_of(shuffled<int64_t>(1234, 1000000)), "7de47921740fe2c5c9a88a6f312bc1fa");
  RandomState random(1234);
  std::vector<int32_t> ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, five = {0, 1, 2, 3, 4};
  random.shuffle(std::span(ten));
  random.shuffle(std::span(five));
  EXPECT_THAT(five, ElementsAre(0, 4, 3, 2, 1));
}

// Every length around the batch and mask borders equals the loop that draws one position at a time.
TEST(RandomState, BatchesEqualOneByOne) {
  for (size_t n : {2u, 3u, 63u, 64u, 65u, 127u, 128u, 129u, 130u, 255u, 256u, 257u, 511u, 623u,
                   624u, 625u, 1025u}) {
    std::vector<int32_t> plain(n);
    std::iota(plain.begin(), plain.end(), 0);
    RandomState random(static_cast<uint32_t>(n));
    for (size_t i = n - 1; i > 0; --i) std::swap(plain[i], plain[random.interval(i)]);
    EXPECT_EQ(plain, shuffled<int32_t>(static_cast<uint32_t>(n), n)) << n;
  }
}

// A dataset of these lengths; token j of sequence i is (i + j) mod 1000.
IndexedDataset dataset_of(const std::string& prefix, std::span<const int32_t> lengths) {
  IndexedDatasetBuilder builder(prefix, {.dtype = DType::uint16, .existing = Existing::replace});
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < lengths.size(); ++i) {
    tokens.resize(static_cast<size_t>(lengths[i]));
    for (size_t j = 0; j < tokens.size(); ++j) tokens[j] = static_cast<int32_t>((i + j) % 1000);
    builder.add_document(tokens, lengths.subspan(i, 1));
  }
  builder.finish();
  return IndexedDataset::open(prefix);
}

std::vector<int32_t> lengths_g() {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 1000; ++i) lengths.push_back(1 + i * 7919 % 523);
  return lengths;
}

struct DigestRow {
  SequenceRange range;
  int64_t seq_length;
  uint32_t seed;
  int64_t num_samples;
  int64_t epochs;
  bool separate;
  int64_t n;
  std::string document, sample, shuffle;
};

TEST(SampleIndex, DigestsOfMegatron) {
  ScratchFolder folder;
  const IndexedDataset dataset = dataset_of(folder / "g", lengths_g());
  EXPECT_EQ(md5_hex(read_whole(folder / "g.bin")), "44ef496712f6b1dbc2c32bbd675cf269");
  EXPECT_EQ(md5_hex(read_whole(folder / "g.idx")), "2612341a2dea0ccef68774ef5a527c55");
  const DigestRow rows[] = {
      {{0, 1000},
       128,
       1234,
       1000,
       1,
       false,
       2050,
       "3f4f15eb6f685b404530b9069180aa76",
       "ef10fe29bce027eb03855c3527cabeab",
       "b2c598244c03a10f1becfeb994b92142"},
      {{0, 1000},
       128,
       1234,
       5000,
       3,
       true,
       6151,
       "7c5eb2a8a4bb6d7c7051c05a8d482714",
       "5459d1f2de64ef542d5ab097d1895bb6",
       "f71add3c6a8b16c978d1cdeba386ef57"},
      {{0, 1000},
       128,
       42,
       2500,
       2,
       true,
       4101,
       "414bf1bfec70f04961ae3bab3acae731",
       "f7615f222cc2c8e5fafeb1fbe0670d55",
       "4e699abfb1470b85fac9e36d4a1eea4f"},
      {{0, 969},
       64,
       1234,
       3000,
       1,
       false,
       3977,
       "504cf3ba0cf5752203f356e14dca9700",
       "f252b7329a27bbe9308b7106c772b6f3",
       "3b9f9a5761edb51a2b6a9534098f692c"},
      {{969, 999},
       64,
       1234,
       50,
       1,
       false,
       120,
       "557417f26f63053390ca0540d19571b7",
       "a64e90487f96111a691bf1b1dd16b221",
       "b62b767922e252573e0a54e53451c7c5"},
      {{999, 1000},
       64,
       1234,
       1,
       1,
       false,
       2,
       "2d27eed4a7a73854b9d107744e4d50d9",
       "2524fcf19923e0c988341cf13a5c5314",
       "da35686b165e3223d5d49c046644e68e"},
  };
  for (const DigestRow& row : rows) {
    const SampleIndexOptions options{
        .seq_length = row.seq_length, .seed = row.seed, .num_samples = row.num_samples};
    const EpochPlan plan = plan_epochs(dataset, row.range, options);
    EXPECT_EQ(plan.num_epochs, row.epochs);
    EXPECT_EQ(plan.separate_last_epoch, row.separate);
    const SampleIndex index = SampleIndex::build(dataset, row.range, options);
    EXPECT_EQ(index.num_samples(), row.n);
    EXPECT_EQ(md5_hex(index.document_index().bytes()), row.document);
    EXPECT_EQ(md5_hex(index.sample_index().bytes()), row.sample);
    EXPECT_EQ(md5_hex(index.shuffle_index().bytes()), row.shuffle);
    EXPECT_EQ(index.shuffle_index().type(), IndexType::u4);
  }
  const char* old_rows[] = {"a3b33b312c9bbb1442a09665541a4960", "03d43d1391e3d847c02de7e3e3cddaa6",
                            "d08cc76aca9584d46acefc98df64a9c7"};
  for (size_t i = 0; i < 3; ++i) {
    const SampleIndex index = SampleIndex::build(dataset, rows[i].range,
                                                 {.seq_length = 128,
                                                  .seed = rows[i].seed,
                                                  .num_samples = rows[i].num_samples,
                                                  .compat = Compat::fork_2023});
    EXPECT_EQ(md5_hex(index.sample_index().bytes()), old_rows[i]);
  }
}

TEST(SampleIndex, ReadsTokens) {
  ScratchFolder folder;
  const IndexedDataset dataset = dataset_of(folder / "g", lengths_g());
  const SampleIndex index =
      SampleIndex::build(dataset, {0, 1000}, {.seq_length = 128, .num_samples = 1000});
  std::vector<int32_t> tokens(129, -1);
  EXPECT_EQ(index.read(0, dataset, tokens), 129);
  EXPECT_EQ(tokens[0], 754);
  EXPECT_EQ(tokens[15], 769);
  EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end() - 1, 0), 112515);
  std::vector<SamplePiece> pieces;
  for (int64_t i = 0; i < index.num_samples(); ++i) {
    index.pieces(i, dataset, pieces);
    int64_t sum = 0;
    for (const SamplePiece& piece : pieces) sum += piece.num_tokens;
    ASSERT_EQ(sum, 129);
  }
}

// The loop of the reference, one sample after another.
std::vector<int64_t> plain_rows(std::span<const int32_t> lengths, std::span<const int64_t> order,
                                int64_t seq, int64_t extra, int64_t n) {
  std::vector<int64_t> rows = {0, 0};
  int64_t k = 0, offset = 0;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t rest = seq + extra; rest != 0;) {
      const int64_t length = lengths[static_cast<size_t>(order[static_cast<size_t>(k)])];
      const int64_t available = length - offset;
      rest -= available;
      if (rest <= 0) {
        offset += rest + available - extra;
        rest = 0;
      } else if (k == static_cast<int64_t>(order.size()) - 1) {
        offset = length - extra;
        break;
      } else {
        ++k;
        offset = 0;
      }
    }
    rows.push_back(k);
    rows.push_back(offset);
  }
  return rows;
}

TEST(SampleIndex, RowsEqualThePlainLoop) {
  ScratchFolder folder;
  std::mt19937 random(11);
  int built = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<int32_t> lengths(1 + random() % 40);
    const unsigned longest = round % 3 == 0 ? 3 : 30;
    for (int32_t& length : lengths) length = static_cast<int32_t>(random() % longest);
    const IndexedDataset dataset = dataset_of(folder / "r", lengths);
    SampleIndexOptions options{.seq_length = 1 + static_cast<int64_t>(random() % 12),
                               .seed = static_cast<uint32_t>(random())};
    options.extra_token = random() % 4 != 0;
    options.drop_last_partial = random() % 2 == 0;
    if (random() % 4 != 0) options.num_samples = random() % 60;
    SampleIndex index;
    try {
      index = SampleIndex::build(dataset, {0, dataset.num_sequences()}, options);
    } catch (const FormatError&) {
      continue;  // no token at all, or a partial sample at an empty sequence
    }
    ++built;
    const std::vector<int64_t> order = values_of(index.document_index());
    EXPECT_EQ(
        values_of(index.sample_index()),
        plain_rows(lengths, order, options.seq_length, options.extra_token, index.num_samples()));
    const auto again = [&] {
      return SampleIndex::adopt(IndexArray::open(folder / "d.npy"),
                                IndexArray::open(folder / "s.npy"),
                                IndexArray::open(folder / "h.npy"), dataset, options, "cache");
    };
    const auto save = [&](const IndexArray& array, const char* name) {
      OutputFile file(folder / name, Existing::replace);
      array.write(file);
      file.commit();
      EXPECT_TRUE(array.equals_file(folder / name));
    };
    save(index.document_index(), "d.npy");
    save(index.sample_index(), "s.npy");
    save(index.shuffle_index(), "h.npy");
    const SampleIndex mapped = again();
    const SequenceRange all{0, dataset.num_sequences()};
    const EpochPlan plan = plan_epochs(dataset, all, options);
    EXPECT_TRUE(mapped.fits(dataset, all, plan, options)) << round;
    std::vector<int32_t> want(static_cast<size_t>(options.seq_length + 1), -1), have = want;
    for (int64_t i = 0; i < index.num_samples(); ++i) {
      EXPECT_EQ(index.read(i, dataset, want), mapped.read(i, dataset, have));
      EXPECT_EQ(want, have);
    }
  }
  EXPECT_GT(built, 300);
}

TEST(SampleIndex, WorkedExamples) {
  ScratchFolder folder;
  const std::vector<int32_t> lengths = {5, 3, 7, 2, 6, 4, 1, 8, 3, 5};
  const IndexedDataset dataset = dataset_of(folder / "w", lengths);
  const auto build = [&](std::optional<int64_t> n, int64_t seq, bool extra, bool drop) {
    return SampleIndex::build(
        dataset, {0, 10},
        {.seq_length = seq, .num_samples = n, .extra_token = extra, .drop_last_partial = drop});
  };
  EXPECT_THAT(
      values_of(build(17, 4, true, true).shuffle_index()),
      ElementsAre(7, 1, 9, 5, 8, 4, 3, 0, 2, 6, 18, 15, 16, 11, 14, 20, 12, 13, 19, 10, 17));
  EXPECT_THAT(
      values_of(build(18, 4, true, true).shuffle_index()),
      ElementsAre(8, 19, 14, 1, 4, 11, 20, 17, 13, 9, 0, 7, 3, 10, 6, 2, 5, 12, 16, 18, 15));
  const SampleIndex partial = build(std::nullopt, 4, true, false);
  EXPECT_THAT(values_of(partial.shuffle_index()), ElementsAre(3, 10, 2, 1, 7, 5, 4, 0, 8, 6, 9));
  EXPECT_EQ(partial.sample_index()[22], 9);
  EXPECT_EQ(partial.sample_index()[23], 1);
  std::vector<int32_t> tokens(5, -1);
  EXPECT_EQ(partial.read(1, dataset, tokens),
            4);  // shuffle_index[1] is 10, the partial one: 44 - 40 tokens
  const SampleIndex no_extra = build(5, 8, false, true);
  EXPECT_THAT(values_of(no_extra.sample_index()), ElementsAre(0, 0, 0, 8, 2, 1, 4, 1, 6, 1, 7, 3));
  EXPECT_THAT(values_of(no_extra.shuffle_index()), ElementsAre(0, 4, 3, 2, 1));
}

// Beyond 2^24 tokens the reference's division in single precision loses the last one, and with it
// a whole partial sample.
TEST(SampleIndex, PartialSamplesAreCountedInSinglePrecision) {
  constexpr int32_t kLimit = 1 << 24;
  ScratchFolder folder;
  for (const int32_t more : {0, 1, 2, 3}) {
    const IndexedDataset dataset =
        dataset_of(folder / std::to_string(more), std::vector<int32_t>{kLimit + 1 + more});
    const SampleIndex index = SampleIndex::build(
        dataset, {0, 1},
        {.seq_length = kLimit, .num_samples = std::nullopt, .drop_last_partial = false});
    EXPECT_EQ(index.num_samples(), more < 2 ? 1 : 2) << more;
  }
}

// Arrays of others' files: a sample may begin and end only where its sequence has tokens.
TEST(SampleIndex, AdoptsOffsetsUpToASequencesEndAndNoFurther) {
  ScratchFolder folder;
  const IndexedDataset dataset = dataset_of(folder / "o", std::vector<int32_t>{5, 3, 7});
  const auto adopted = [&](int32_t begin, int32_t end, bool extra) {
    const auto array = [](std::vector<int32_t> values, int64_t columns) {
      const auto size = static_cast<int64_t>(values.size());
      IndexArray out(IndexType::i4, columns == 0 ? size : size / columns, columns);
      std::ranges::copy(values, out.fill<int32_t>().begin());
      return out;
    };
    try {
      SampleIndex::adopt(array({0, 1, 2}, 0), array({0, begin, 1, 1, 2, end}, 2), array({1, 0}, 0),
                         dataset, {.seq_length = 4, .extra_token = extra}, "d.npy");
    } catch (const FormatError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string past = "d.npy: offset past the end: stale or damaged index files";
  EXPECT_EQ(adopted(0, 6, true), "");
  EXPECT_EQ(adopted(0, 7, true), past);  // the token behind the last sample is not there
  EXPECT_EQ(adopted(0, 7, false), "");
  EXPECT_EQ(adopted(0, 8, false), past);
  EXPECT_EQ(adopted(5, 6, false), "");
  EXPECT_EQ(adopted(6, 6, false), past);
  EXPECT_EQ(adopted(-1, 6, true), "d.npy: offsets out of order: stale or damaged index files");
}

TEST(SampleIndex, RefusesARangeWithoutTokens) {
  ScratchFolder folder;
  const IndexedDataset dataset = dataset_of(folder / "e", std::vector<int32_t>{0, 0, 3});
  EXPECT_THAT(
      [&] {
        SampleIndex::build(dataset, {0, 2}, {.seq_length = 4, .num_samples = 1, .split = "valid"});
      },
      testing::ThrowsMessage<FormatError>(testing::EndsWith(
          "e.idx: sequences 0 to 2 of the valid split: no tokens to make 1 samples of")));
  EXPECT_EQ(SampleIndex::build(dataset, {2, 2}, {.seq_length = 4}).num_samples(), 0);
  EXPECT_EQ(SampleIndex::build(dataset, {0, 2}, {.seq_length = 4}).sample_index().rows(), 1);
}

TEST(Npy, HeaderAndRefusals) {
  EXPECT_THROW(IndexArray(IndexType::i4, int64_t{1} << 62), std::bad_alloc);
  ScratchFolder folder;
  IndexArray array(IndexType::i4, 9, 2);
  std::iota(array.fill<int32_t>().begin(), array.fill<int32_t>().end(), 0);
  OutputFile file(folder / "a.npy");
  array.write(file);
  file.commit();
  const std::string bytes = read_whole(folder / "a.npy");
  EXPECT_EQ(bytes.size(), 128u + 72u);
  EXPECT_EQ(bytes.substr(0, 71),
            std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                "{'descr': '<i4', 'fortran_order': False, 'shape': (9, 2), }  ");
  EXPECT_EQ(bytes[127], '\n');
  EXPECT_THAT(values_of(IndexArray::open(folder / "a.npy")), testing::SizeIs(18));
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = bytes;
    changed[random() % 80] = static_cast<char>(random());
    if (round % 5 == 0) changed.resize(random() % changed.size());
    write_whole(folder / "f.npy", changed);
    try {
      const IndexArray read = IndexArray::open(folder / "f.npy");
      int64_t sum = 0;
      for (int64_t i = 0; i < read.size(); ++i) sum += read[i] & 1;
      EXPECT_GE(sum, 0);
    } catch (const FormatError&) {
    }
  }
}

TEST(Blend, DigestsOfMegatron) {
  const auto digests = [](const BlendIndex& blend) {
    return std::pair(md5_hex(blend.dataset_index.bytes()),
                     md5_hex(blend.dataset_sample_index.bytes()));
  };
  const double w3[] = {.1 / (.1 + .2 + .7), .2 / (.1 + .2 + .7), .7 / (.1 + .2 + .7)};
  EXPECT_EQ(digests(build_blend(w3, 100000)),
            std::pair(std::string("87d8643ee420ec5eac010d7c25db156e"),
                      std::string("78f01e8a1130f15c76a58892e7e55d73")));
  EXPECT_THAT(build_blend(w3, 100000).counts, ElementsAre(10000, 20000, 70000));
  const double w5[] = {1 / 15.0, 2 / 15.0, 3 / 15.0, 4 / 15.0, 5 / 15.0};
  EXPECT_EQ(digests(build_blend(w5, 54321)),
            std::pair(std::string("9123ee4d685413577443052c40a273be"),
                      std::string("d08a00f11c242863ba9dc160547e5ceb")));
  const int64_t sizes[] = {1000, 2500, 70};
  EXPECT_EQ(digests(build_exhaustive_blend(sizes)),
            std::pair(std::string("f7c2f0022e8f2aaa8cb11c45db503433"),
                      std::string("f44b736aa2f831ed7bed6805b24464fb")));
  const int64_t more[] = {17, 1, 999};
  EXPECT_EQ(digests(build_exhaustive_blend(more)),
            std::pair(std::string("397905a9cc523d86b332445530b059ee"),
                      std::string("5aa6a048edd2c2415902a24289550913")));
  const double halves[] = {.5, .25, .25};
  EXPECT_THAT(values_of(build_blend(halves, 8).dataset_index), ElementsAre(0, 1, 2, 0, 0, 1, 2, 0));
  EXPECT_EQ(build_blend(halves, 8, Compat::fork_2023).dataset_index.type(), IndexType::u1);
  EXPECT_THROW(build_blend({}, 8), FormatError);
  EXPECT_THROW(build_blend(std::vector<double>(32767, 1.0), 8), FormatError);
  EXPECT_THROW(build_blend(std::vector<double>(255, 1.0), 8, Compat::fork_2023), FormatError);
}

}  // namespace
}  // namespace indexed
