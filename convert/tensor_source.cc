// SPDX-License-Identifier: MIT
// tensor_source.h: sources made from sources. A source that was made here is a list of runs, each
// of which is neighbouring rows of one store. Stores are mapped files, sources from elsewhere, and
// computed data (a transpose, another dtype, columns side by side). Making a source from others
// only joins lists, and adjacent runs are merged: q, k and v that are split and fused again are one
// run, as before. Computed data remembers its origin: a transpose of a transpose is the source
// itself, and a transpose of converted data is converted last, where it can be read by rows.
#include "convert/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "convert/transpose_block.h"
#include "libindexed/format.h"
#include "trainer/checkpoint/safetensors.h"

namespace convert {
namespace {

using indexed::FormatError;

/// Computed data passes through a buffer of about this many bytes, which stays in a cache.
constexpr int64_t kStepBytes = 256 << 10;
/// Rows of a transpose are made in multiples of this many: a cache line of the source or more.
constexpr int64_t kTurnedRows = 32;
/// Rows of a transpose that are made at once: each needs two bytes or more of every source row.
constexpr int64_t kStepRows = 512;
/// The limit for a list of runs; a longer one could take memory out of proportion to its file.
constexpr size_t kMostRuns = size_t{1} << 16;

[[noreturn]] void fail(const TensorSource& source, const std::string& why) {
  throw FormatError(source.place + ": " + why);
}

/// What rows are read from. Constant except for a transpose's memory.
struct Store {
  int64_t rows = 0, row_bytes = 0;
  MappedRows mapped = {};  ///< if data is not null
  std::function<void(int64_t first, int64_t count, std::byte* out)> read = {};  ///< else
  std::function<void()> give_back = {};  ///< of what `read` copies; may be empty
  std::string place = {};                ///< of the source that it was made for
  // The origin of computed data, for sources that are made from it.
  std::optional<TensorSource> transposed = {}, converted = {}, exact = {};
  std::vector<TensorSource> columns = {};

  void copy(int64_t first, int64_t count, std::byte* out) const {
    if (mapped.data == nullptr) return read(first, count, out);
    std::memcpy(out, at(first, count), static_cast<size_t>(count * row_bytes));
  }
  const std::byte* at(int64_t first, int64_t count) const {
    if (mapped.check) mapped.check(first * row_bytes, (first + count) * row_bytes);
    return mapped.data + first * row_bytes;
  }
};

/// Rows begin .. begin + count - 1 of a source are rows first .. of a store.
struct Run {
  std::shared_ptr<const Store> store;
  int64_t first = 0, count = 0, begin = 0;
};

/// The runs of a source, ascending; its read_rows is of this type.
struct Runs {
  std::shared_ptr<const std::vector<Run>> list;

  const Run* find(int64_t row) const {
    const auto behind =
        std::upper_bound(list->begin(), list->end(), row,
                         [](int64_t place, const Run& run) { return place < run.begin; });
    return behind == list->begin() ? nullptr : &*(behind - 1);
  }

  void operator()(int64_t first, int64_t count, std::byte* out) const {
    for (const Run* run = find(first); count > 0; ++run) {
      const int64_t n = std::min(count, run->begin + run->count - first);
      run->store->copy(run->first + first - run->begin, n, out);
      out += n * run->store->row_bytes;
      first += n;
      count -= n;
    }
  }
};

/// The runs of a source that was made here; null for one from elsewhere.
const Runs* runs_of(const TensorSource& source) { return source.read_rows.target<Runs>(); }

std::vector<Run> list_of(const TensorSource& source) {
  if (const Runs* runs = runs_of(source)) return *runs->list;
  auto store = std::make_shared<Store>(Store{.rows = source.rows(),
                                             .row_bytes = source.row_bytes(),
                                             .read = source.read_rows,
                                             .place = source.place});
  return {{store, 0, source.rows(), 0}};
}

void append(std::vector<Run>& list, Run run) {
  if (run.count == 0) return;
  if (!list.empty()) {
    Run& last = list.back();
    run.begin = last.begin + last.count;
    if (last.store == run.store && last.first + last.count == run.first) {
      last.count += run.count;
      return;
    }
  }
  list.push_back(std::move(run));
}

/// Appends rows first .. first + count - 1 of `from`.
void append(std::vector<Run>& list, const Runs& from, int64_t first, int64_t count) {
  for (const Run* run = from.find(first); count > 0; ++run) {
    const int64_t n = std::min(count, run->begin + run->count - first);
    append(list, {run->store, run->first + first - run->begin, n, 0});
    first += n;
    count -= n;
  }
}

void set_runs(TensorSource& source, std::vector<Run> list) {
  source.read_rows = Runs{std::make_shared<const std::vector<Run>>(std::move(list))};
}

TensorSource of_store(TensorSource source, Store store) {
  store.rows = source.rows();
  store.row_bytes = source.row_bytes();
  store.place = source.place;
  set_runs(source, {{std::make_shared<const Store>(std::move(store)), 0, source.rows(), 0}});
  return source;
}

/// The store that a source consists of, if it is all of its rows in order; otherwise null.
const Store* whole_store(const TensorSource& source) {
  const Runs* runs = runs_of(source);
  if (runs == nullptr || runs->list->size() != 1) return nullptr;
  const Run& run = runs->list->front();
  const bool whole = run.first == 0 && run.count == run.store->rows && run.count == source.rows();
  return whole ? run.store.get() : nullptr;
}

/// Where a row comes from: of a joined source, its part's place.
std::string place_of(const TensorSource& source, int64_t row) {
  const Runs* runs = runs_of(source);
  const Run* run = runs == nullptr ? nullptr : runs->find(row);
  if (run == nullptr) return source.place;
  const Store& store = *run->store;
  const int64_t stored = run->first + row - run->begin;
  return store.converted ? place_of(*store.converted, stored) : store.place;
}

bool lies_in_files(const Runs* runs) {
  return runs != nullptr && std::all_of(runs->list->begin(), runs->list->end(), [](const Run& run) {
           return run.store->mapped.data != nullptr;
         });
}

/// Transposes columns first .. first + count - 1 of `rows` rows at `in`, some at a time, so that
/// what is written stays in a processor's own cache until each of its lines is whole.
void turn(const std::byte* in, int64_t row, int64_t rows, int64_t first, int64_t count,
          int64_t element, std::byte* out, int64_t out_row) {
  const int64_t step = std::max<int64_t>(
      kTurnedRows, kStepBytes / std::max<int64_t>(out_row, 1) / kTurnedRows * kTurnedRows);
  for (int64_t at = 0, n = 0; at < count; at += n) {
    n = count - at < 2 * step ? count - at : step;
    transpose_block(in + (first + at) * element, row, rows, n, element, out + at * out_row,
                    out_row);
  }
}

/// A transpose's rows. A source that is not in mapped files is loaded by the first call, and freed
/// when all rows have been read.
class Turned {
 public:
  explicit Turned(TensorSource source) : source_(std::move(source)) {}

  void read(int64_t first, int64_t count, std::byte* out) {
    const Runs* runs = runs_of(source_);
    const int64_t element = source_.element_bytes(), row = source_.row_bytes();
    const int64_t out_row = source_.rows() * element;
    if (lies_in_files(runs)) {
      for (const Run& run : *runs->list)
        turn(run.store->at(run.first, run.count), row, run.count, first, count, element,
             out + run.begin * element, out_row);
      return;
    }
    const std::shared_ptr<const std::byte[]> all = loaded(count);
    turn(all.get(), row, source_.rows(), first, count, element, out, out_row);
  }

 private:
  std::shared_ptr<const std::byte[]> loaded(int64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!all_) {
      const auto fresh =
          std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(source_.bytes()));
      source_.read_rows(0, source_.rows(), fresh.get());
      all_ = fresh;
    }
    std::shared_ptr<const std::byte[]> result = all_;
    if ((rows_read_ += count) < source_.shape[1]) return result;
    all_.reset();
    rows_read_ = 0;
    return result;
  }

  TensorSource source_;
  std::mutex mutex_;
  std::shared_ptr<const std::byte[]> all_;
  int64_t rows_read_ = 0;
};

/// Calls use(first, count, bytes) for parts of a source's rows that fit in a cache.
template <class Use>
void by_steps(const TensorSource& source, int64_t first, int64_t count, const Use& use) {
  const int64_t row = source.row_bytes();
  if (count == 0 || row == 0) return;
  const Store* store = whole_store(source);
  const bool turned = store != nullptr && store->transposed.has_value();
  const int64_t step = std::max<int64_t>(turned ? kStepRows : 1, kStepBytes / row);
  Scratch scratch;
  for (int64_t at = first; at < first + count; at += step) {
    const int64_t n = std::min(step, first + count - at);
    use(at - first, n, source.block(at * row, n * row, scratch).data());
  }
}

}  // namespace

std::byte* Scratch::of(int64_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();  // before the larger one is allocated
    memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    bytes_ = bytes;
  }
  return memory_.get();
}

int64_t TensorSource::element_bytes() const noexcept {
  return trainer::safetensors_dtype_bits(dtype) / 8;
}

int64_t TensorSource::elements() const noexcept {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

int64_t TensorSource::row_bytes() const noexcept {
  int64_t count = element_bytes();
  for (size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

std::vector<std::byte> TensorSource::load() const {
  std::vector<std::byte> out(static_cast<size_t>(bytes()));
  if (!out.empty()) read_rows(0, rows(), out.data());
  return out;
}

const std::byte* TensorSource::in_place(int64_t first, int64_t count) const {
  const Runs* runs = runs_of(*this);
  const Run* run = runs == nullptr ? nullptr : runs->find(first);
  if (run == nullptr || run->store->mapped.data == nullptr ||
      first + count > run->begin + run->count)
    return nullptr;
  return run->store->at(run->first + first - run->begin, count);
}

std::vector<MappedPiece> TensorSource::mapped_pieces() const {
  const Runs* runs = runs_of(*this);
  if (runs == nullptr) return {};
  std::vector<MappedPiece> pieces;
  for (const Run& run : *runs->list) {
    const Store& store = *run.store;
    MappedPiece piece{.first = run.begin, .count = run.count};
    if (store.mapped.data != nullptr) {
      piece.data = store.at(run.first, run.count);
      piece.row_bytes = store.row_bytes;
    } else if (store.transposed) {
      const TensorSource& original = *store.transposed;
      piece.data = original.in_place(0, original.rows());
      piece.row_bytes = original.row_bytes();
      piece.transposed = true;
    }
    if (piece.data == nullptr) return {};
    if (piece.transposed) piece.data += run.first * element_bytes();
    pieces.push_back(piece);
  }
  return pieces;
}

std::span<const std::byte> TensorSource::block(int64_t at, int64_t size, Scratch& scratch) const {
  if (size == 0) return {};
  const int64_t row = row_bytes(), first = at / row, end = (at + size + row - 1) / row;
  const std::byte* data = in_place(first, end - first);
  if (data == nullptr) {
    std::byte* memory = scratch.of((end - first) * row);
    read_rows(first, end - first, memory);
    data = memory;
  }
  return {data + (at - first * row), static_cast<size_t>(size)};
}

void TensorSource::release() const {
  const Runs* runs = runs_of(*this);
  if (runs == nullptr) return;
  for (const Run& run : *runs->list) {
    const Store& store = *run.store;
    if (store.mapped.release)
      store.mapped.release(run.first * store.row_bytes, (run.first + run.count) * store.row_bytes);
    if (store.give_back) store.give_back();
    if (store.transposed) store.transposed->release();
    if (store.converted) store.converted->release();
    for (const TensorSource& part : store.columns) part.release();
  }
}

TensorSource mapped_source(const std::string& dtype, std::vector<int64_t> shape,
                           const std::string& place, MappedRows rows) {
  return of_store({dtype, std::move(shape), {}, place}, {.mapped = std::move(rows)});
}

TensorSource copied_source(TensorSource source, std::function<void()> give_back) {
  Store store{.read = source.read_rows, .give_back = std::move(give_back)};
  return of_store(std::move(source), std::move(store));
}

namespace {

/// The number of rows from `row` on, below `end`, with consecutive origins.
int64_t run_length(const std::function<int64_t(int64_t)>& origin, int64_t row, int64_t end) {
  const int64_t from = origin(row);
  int64_t n = 1;
  while (row + n < end && origin(row + n) == from + n) ++n;
  return n;
}

}  // namespace

TensorSource slice_rows(const TensorSource& source, int64_t first, int64_t count) {
  if (source.shape.empty() || first < 0 || count < 0 || first > source.rows() - count)
    fail(source, "rows " + std::to_string(first) + " to " + std::to_string(first + count) + " of " +
                     std::to_string(source.rows()) + " do not exist");
  TensorSource result = source;
  set_runs(result, list_of(source));
  std::vector<Run> list;
  append(list, *runs_of(result), first, count);
  result.shape[0] = count;
  set_runs(result, std::move(list));
  return result;
}

TensorSource pick_rows(const TensorSource& source, int64_t count,
                       std::function<int64_t(int64_t)> origin) {
  if (source.shape.empty()) fail(source, "a scalar has no rows");
  TensorSource result = source;
  set_runs(result, list_of(source));
  const Runs all = *runs_of(result);
  result.shape[0] = count;
  // There may be 2^60 rows of zero bytes.
  bool listed = source.row_bytes() > 0;
  std::vector<Run> list;
  for (int64_t i = 0, n = 0; listed && i < count; i += n) {
    n = run_length(origin, i, count);
    append(list, all, origin(i), n);
    listed = list.size() <= kMostRuns;
  }
  if (listed) {
    set_runs(result, std::move(list));
    return result;
  }
  Store store;
  store.read = [all, origin = std::move(origin), row = source.row_bytes()](
                   int64_t first, int64_t rows, std::byte* out) {
    for (int64_t i = 0, n = 0; i < rows; i += n) {
      n = run_length(origin, first + i, first + rows);
      all(origin(first + i), n, out + i * row);
    }
  };
  return of_store(std::move(result), std::move(store));
}

TensorSource join_rows(std::vector<TensorSource> parts) {
  if (parts.size() == 1) return parts[0];
  TensorSource result = parts.at(0);
  if (result.shape.empty()) fail(result, "a scalar has no rows");
  result.shape[0] = 0;
  std::vector<Run> list;
  for (const TensorSource& part : parts) {
    if (part.dtype != result.dtype)
      fail(part, "is " + part.dtype + ", but " + result.place + " is " + result.dtype +
                     ": they become one tensor, which has one dtype");
    if (part.shape.size() != result.shape.size() ||
        !std::equal(part.shape.begin() + 1, part.shape.end(), result.shape.begin() + 1))
      fail(part, "does not fit under " + result.place);
    for (Run& run : list_of(part)) append(list, std::move(run));
    result.shape[0] += part.shape[0];
  }
  set_runs(result, std::move(list));
  return result;
}

TensorSource join_columns(std::vector<TensorSource> parts) {
  if (parts.size() == 1) return parts[0];
  TensorSource result = parts.at(0);
  result.shape.resize(2);
  result.shape[1] = 0;
  for (const TensorSource& part : parts) {
    if (part.dtype != result.dtype || part.shape.size() != 2 || part.shape[0] != result.shape[0])
      fail(part, "does not fit beside " + result.place);
    result.shape[1] += part.shape[1];
  }
  const int64_t stride = result.row_bytes();
  Store store{.columns = parts};
  store.read = [parts = std::move(parts), stride](int64_t first, int64_t count, std::byte* out) {
    for (const TensorSource& part : parts) {
      const int64_t width = part.row_bytes();
      by_steps(part, first, count, [&](int64_t at, int64_t n, const std::byte* rows) {
        for (int64_t i = 0; i < n; ++i)
          std::memcpy(out + (at + i) * stride, rows + i * width, static_cast<size_t>(width));
      });
      out += width;
    }
  };
  return of_store(std::move(result), std::move(store));
}

TensorSource transpose(const TensorSource& source) {
  if (source.shape.size() != 2) fail(source, "is no matrix");
  TensorSource result = source;
  std::swap(result.shape[0], result.shape[1]);
  if (const Store* store = whole_store(source)) {
    if (store->transposed) {
      TensorSource original = *store->transposed;
      original.place = source.place;
      return original;
    }
    if (store->converted) return convert_dtype(transpose(*store->converted), source.dtype);
    if (!store->columns.empty()) {
      std::vector<TensorSource> parts;
      for (const TensorSource& part : store->columns) parts.push_back(transpose(part));
      return join_rows(std::move(parts));
    }
  }
  const auto turned = std::make_shared<Turned>(source);
  Store store{.transposed = source};
  store.read = [turned](int64_t first, int64_t count, std::byte* out) {
    turned->read(first, count, out);
  };
  return of_store(std::move(result), std::move(store));
}

TensorSource convert_dtype(const TensorSource& source, const std::string& dtype) {
  if (source.dtype == dtype) return source;
  if (const Store* store = whole_store(source); store != nullptr && store->exact)
    return convert_dtype(*store->exact, dtype);
  if (!is_float(source.dtype) || !is_float(dtype))
    fail(source, "dtype " + source.dtype + " is not converted to " + dtype);
  TensorSource result = source;
  result.dtype = dtype;
  Store store{.converted = source};
  store.read = [source, dtype, row = result.row_bytes()](int64_t first, int64_t count,
                                                         std::byte* out) {
    const int64_t wide = source.row_bytes() / source.element_bytes();
    by_steps(source, first, count, [&](int64_t at, int64_t n, const std::byte* rows) {
      convert_floats(source.dtype, rows, dtype, out + at * row, n * wide);
    });
  };
  return of_store(std::move(result), std::move(store));
}

TensorSource round_computed(const TensorSource& exact, const std::string& dtype) {
  if (exact.dtype == dtype) return exact;
  const TensorSource once = convert_dtype(exact, dtype);
  TensorSource result = exact;
  result.dtype = dtype;
  Store store{.exact = exact};
  store.read = once.read_rows;
  return of_store(std::move(result), std::move(store));
}

TensorSource add_one(const TensorSource& source) {
  TensorSource exact = convert_dtype(source, "F64");
  Store store;
  store.read = [wide = exact.read_rows, row = exact.row_bytes()](int64_t first, int64_t count,
                                                                 std::byte* out) {
    std::vector<double> numbers(static_cast<size_t>(count * row) / sizeof(double));
    wide(first, count, reinterpret_cast<std::byte*>(numbers.data()));
    for (double& x : numbers) x += 1.0;
    std::memcpy(out, numbers.data(), numbers.size() * sizeof(double));
  };
  return round_computed(of_store(std::move(exact), std::move(store)), source.dtype);
}

void refuse_not_finite(const TensorSource& source, int64_t at, std::span<const std::byte> bytes) {
  if (count_not_finite(source.dtype, bytes) == 0) return;
  const size_t element = static_cast<size_t>(source.element_bytes());
  size_t wrong = 0;
  while (count_not_finite(source.dtype, bytes.subspan(wrong, element)) == 0) wrong += element;
  throw FormatError(place_of(source, (at + static_cast<int64_t>(wrong)) / source.row_bytes()) +
                    ": has numbers that are not finite in " + source.dtype);
}

TensorSource zeros(const std::string& dtype, std::vector<int64_t> shape) {
  TensorSource result{dtype, std::move(shape), {}, "zeros"};
  Store store;
  store.read = [row = result.row_bytes()](int64_t, int64_t count, std::byte* out) {
    std::memset(out, 0, static_cast<size_t>(count * row));
  };
  return of_store(std::move(result), std::move(store));
}

}  // namespace convert
