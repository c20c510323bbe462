#pragma once

#ifdef LORA_WITH_PARQUET
#  include <arrow/array.h>
#  include <arrow/buffer.h>
#  include <arrow/extension_type.h>
#  include <arrow/io/memory.h>
#  include <arrow/memory_pool.h>
#  include <arrow/record_batch.h>
#  include <arrow/result.h>
#  include <arrow/scalar.h>
#  include <arrow/type.h>
#  include <parquet/arrow/reader.h>
#  include <parquet/file_reader.h>
#  include <parquet/metadata.h>
#  include <parquet/properties.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/printable.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/parquet.hpp"
#include "lora/io/formats/unpack.hpp"

namespace lora::io {

LORA_INLINE bool is_parquet(const Path& name, std::string_view content) {
  constexpr std::string_view mark = "PAR1";
  if (!content.starts_with(mark)) return false;
  const std::string ending = lower_extension(unpacked_name(name));
  if (ending != ".txt" && ending != ".csv" && ending != ".tsv") return true;
  constexpr std::size_t least = 12;  // the marks, and between them the length of the footer
  if (content.size() < least || !content.ends_with(mark)) return false;
  std::uint32_t footer = 0;
  std::memcpy(&footer, content.data() + content.size() - 8, sizeof footer);
  return footer <= content.size() - least;
}

}  // namespace lora::io

#ifdef LORA_WITH_PARQUET

namespace lora::io::detail {

/// Values of Arrow's arrays as JSON.
class ArrowRows {
 public:
  /// `name` must outlive this.
  explicit ArrowRows(const std::string& name) : name_(name) {}

  /// A row of a batch; rows are counted over all batches.
  Json operator()(const arrow::RecordBatch& batch, std::int64_t row) {
    ++row_;
    Json record = Json::object();
    auto& fields = record.get_ref<Json::object_t&>();
    for (int i = 0; i < batch.num_columns(); ++i) {
      column_ = &batch.schema()->field(i)->name();
      fields.emplace_back(*column_, value(*batch.column(i), row, 0));
    }
    return record;
  }

 private:
  static constexpr int deepest = 100;

  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    fail<FormatError>(name_, ":", row_, ": column ", shown(Json(*column_)), " ", parts...);
  }

  Json text(std::string_view text) const {
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text, at);
      if (step.whole == 0) fail_here("has bytes that are no UTF-8; expected a text");
      at += step.whole;
    }
    return std::string(text);
  }

  template <class Array>
  static auto number(const arrow::Array& array, std::int64_t at) {
    return static_cast<const Array&>(array).Value(at);
  }

  Json real(double found) const {
    if (std::isinf(found)) fail_here("is infinite; expected a number");
    return std::isnan(found) ? Json() : Json(found);  // which is how pandas writes that nothing is there
  }

  template <class List>
  Json list(const arrow::Array& array, std::int64_t at, int depth) const {
    const auto& lists = static_cast<const List&>(array);
    Json values = Json::array();
    const std::int64_t first = lists.value_offset(at), count = lists.value_length(at);
    expect_inside(*lists.values(), first, count);
    for (std::int64_t i = 0; i < count; ++i) values.push_back(value(*lists.values(), first + i, depth + 1));
    return values;
  }

  Json map(const arrow::MapArray& maps, std::int64_t at, int depth) const {
    Json object = Json::object();
    const std::int64_t first = maps.value_offset(at), count = maps.value_length(at);
    expect_inside(*maps.keys(), first, count);
    for (std::int64_t i = first; i < first + count; ++i) {
      Json key = value(*maps.keys(), i, depth + 1);
      if (!key.is_string()) fail_here("is a map of ", shown(key), "; expected texts as keys");
      object.get_ref<Json::object_t&>().emplace_back(std::move(key.get_ref<std::string&>()),
                                                     value(*maps.items(), i, depth + 1));
    }
    return object;
  }

  void expect_inside(const arrow::Array& values, std::int64_t first, std::int64_t count) const {
    if (first < 0 || count < 0 || first > values.length() - count) fail_here("has a list that goes beyond its values");
  }

  Json value(const arrow::Array& array, std::int64_t at, int depth) const {
    using Type = arrow::Type;
    if (depth > deepest) fail_here("is nested deeper than ", deepest, " levels");
    if (array.IsNull(at)) return {};
    switch (array.type_id()) {
      case Type::BOOL:
        return number<arrow::BooleanArray>(array, at);
      case Type::INT8:
        return number<arrow::Int8Array>(array, at);
      case Type::INT16:
        return number<arrow::Int16Array>(array, at);
      case Type::INT32:
        return number<arrow::Int32Array>(array, at);
      case Type::INT64:
        return number<arrow::Int64Array>(array, at);
      case Type::UINT8:
        return number<arrow::UInt8Array>(array, at);
      case Type::UINT16:
        return number<arrow::UInt16Array>(array, at);
      case Type::UINT32:
        return number<arrow::UInt32Array>(array, at);
      case Type::UINT64:
        return number<arrow::UInt64Array>(array, at);
      case Type::HALF_FLOAT: {
        f16 half;
        half.bits = number<arrow::HalfFloatArray>(array, at);
        return real(double{static_cast<float>(half)});
      }
      case Type::FLOAT:
        return real(double{number<arrow::FloatArray>(array, at)});
      case Type::DOUBLE:
        return real(number<arrow::DoubleArray>(array, at));
      case Type::STRING:
      case Type::BINARY:  // of writers that don't say that a column is text
        return text(static_cast<const arrow::BinaryArray&>(array).GetView(at));
      case Type::LARGE_STRING:
      case Type::LARGE_BINARY:
        return text(static_cast<const arrow::LargeBinaryArray&>(array).GetView(at));
      case Type::STRING_VIEW:
      case Type::BINARY_VIEW:
        return text(static_cast<const arrow::BinaryViewArray&>(array).GetView(at));
      case Type::LIST:
        return list<arrow::ListArray>(array, at, depth);
      case Type::LARGE_LIST:
        return list<arrow::LargeListArray>(array, at, depth);
      case Type::LIST_VIEW:
        return list<arrow::ListViewArray>(array, at, depth);
      case Type::LARGE_LIST_VIEW:
        return list<arrow::LargeListViewArray>(array, at, depth);
      case Type::FIXED_SIZE_LIST:
        return list<arrow::FixedSizeListArray>(array, at, depth);
      case Type::MAP:
        return map(static_cast<const arrow::MapArray&>(array), at, depth);
      case Type::STRUCT: {
        const auto& parts = static_cast<const arrow::StructArray&>(array);
        Json object = Json::object();
        for (int i = 0; i < parts.num_fields(); ++i)
          object.get_ref<Json::object_t&>().emplace_back(parts.type()->field(i)->name(),
                                                         value(*parts.field(i), at, depth + 1));
        return object;
      }
      case Type::DICTIONARY: {
        const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
        const std::int64_t index = coded.GetValueIndex(at);
        expect_inside(*coded.dictionary(), index, 1);
        return value(*coded.dictionary(), index, depth + 1);
      }
      case Type::EXTENSION:
        return value(*static_cast<const arrow::ExtensionArray&>(array).storage(), at, depth + 1);
      case Type::DATE32:
      case Type::DATE64:
      case Type::TIMESTAMP:
      case Type::TIME32:
      case Type::TIME64:
      case Type::DECIMAL32:
      case Type::DECIMAL64:
      case Type::DECIMAL128:
      case Type::DECIMAL256:
        if (const auto scalar = array.GetScalar(at); scalar.ok()) return (*scalar)->ToString();
        break;
      default:
        break;
    }
    fail_here(
        "has values of the type ", std::string_view(array.type()->ToString()),
        "; expected texts, numbers, true and false, days and times, or lists and structs of these: write the file ",
        "without the column");
  }

  const std::string& name_;
  const std::string* column_ = nullptr;
  Index row_ = 0;
};

[[noreturn]] inline void fail_encrypted(const std::string& name) {
  fail<FormatError>(name, ": a Parquet file that is encrypted; expected one that is not");
}

[[noreturn]] inline void fail_parquet(const std::string& name, const arrow::Status& status, std::size_t most) {
  if (status.IsOutOfMemory())
    fail<FormatError>(name, ": a few rows of the Parquet file take more than ", most >> 20,
                      " MiB, or it is damaged; expected smaller row groups or pages");
  if (status.message().find("ecrypt") != std::string::npos) fail_encrypted(name);
  fail<FormatError>(name, ": the Parquet file can't be read: ", shortened(status.message(), 300),
                    status.IsNotImplemented() ? "; expected columns of plain types: pyarrow writes them so without "
                                                "store_schema, polars after a cast to String"
                                              : "");
}

/// Rows that are read at a time: 16 MiB as the file counts them, and few enough that a long text which a dictionary has
/// once and all rows name doesn't fill the memory.
inline std::int64_t rows_at_a_time(const parquet::FileMetaData& file) {
  constexpr std::int64_t most = 256, size = std::int64_t{1} << 24;
  std::int64_t largest = 1;  // row, on average
  for (int i = 0; i < file.num_row_groups(); ++i) {
    const auto group = file.RowGroup(i);
    largest = std::max(largest, group->total_byte_size() / std::max<std::int64_t>(group->num_rows(), 1));
  }
  return std::clamp<std::int64_t>(size / largest, 1, most);
}

inline void expect_own_names(const arrow::Schema& schema, const std::string& name) {
  for (int i = 0; i < schema.num_fields(); ++i)
    for (int j = 0; j < i; ++j)
      if (schema.field(i)->name() == schema.field(j)->name())
        fail<FormatError>(name, ": column ", i + 1, " is called ", shown(Json(schema.field(i)->name())), ", as column ",
                          j + 1, " is");
}

/// Rows of each group, and all of them. Throws   FormatError where a damaged footer contradicts itself
inline void expect_consistent(const parquet::FileMetaData& file, const std::string& name) {
  std::int64_t rows = 0;
  for (int i = 0; i < file.num_row_groups(); ++i) {
    const std::int64_t own = file.RowGroup(i)->num_rows();
    if (own < 0 || own > file.num_rows() - rows)
      fail<FormatError>(name, ": the Parquet file is damaged: row group ", i + 1, " of ", file.num_row_groups(),
                        " has ", own, " rows behind ", rows, " others, but the file has ", file.num_rows());
    rows += own;
  }
  if (rows != file.num_rows())
    fail<FormatError>(name, ": the Parquet file is damaged: its row groups have ", rows, " rows, but the file has ",
                      file.num_rows());
}

inline void write_rows(const MappedFile& file, const std::string& name, std::size_t most, Unpacked& to) {
  const auto taken = [&](auto result) {
    if (!result.ok()) fail_parquet(name, result.status(), most);
    return *std::move(result);
  };
  const auto bytes = file.bytes();
  arrow::CappedMemoryPool memory(arrow::system_memory_pool(), static_cast<std::int64_t>(most));
  parquet::arrow::FileReaderBuilder builder;
  const auto buffer = std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                      static_cast<std::int64_t>(bytes.size()));
  parquet::ReaderProperties reading(&memory);
  reading.set_page_checksum_verification(true);
  const auto opened = builder.Open(std::make_shared<arrow::io::BufferReader>(buffer), reading);
  if (!opened.ok()) fail_parquet(name, opened, most);
  const auto metadata = builder.raw_reader()->metadata();
  expect_consistent(*metadata, name);
  parquet::ArrowReaderProperties properties;
  properties.set_use_threads(false);
  properties.set_pre_buffer(false);
  properties.set_batch_size(rows_at_a_time(*metadata));
  const auto reader = taken(builder.memory_pool(&memory)->properties(properties)->Build());
  ArrowRows rows(name);
  std::string lines;
  // One group after the other: what has codes inside of structs can't be read across them.
  for (int group = 0; group < metadata->num_row_groups(); ++group) {
    const auto batches = taken(reader->GetRecordBatchReader({group}));
    if (group == 0) expect_own_names(*batches->schema(), name);
    std::int64_t left = metadata->RowGroup(group)->num_rows();
    for (;;) {
      const std::shared_ptr<arrow::RecordBatch> batch = taken(batches->Next());
      if (batch == nullptr) break;
      if (const auto whole = batch->Validate(); !whole.ok()) fail_parquet(name, whole, most);
      left -= batch->num_rows();
      for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
        lines += to_text(rows(*batch, row), -1) + "\n";
        if (lines.size() >= unpacked_piece) to.add(std::exchange(lines, {}));
      }
      file.release();
    }
    if (left != 0)
      fail<FormatError>(name, ": the Parquet file is damaged: row group ", group + 1, " has ", std::abs(left),
                        left > 0 ? " rows less" : " rows more", " than the footer says");
  }
  to.add(lines);
}

}  // namespace lora::io::detail

#endif

namespace lora::io::detail {

LORA_INLINE std::shared_ptr<const MappedFile> parquet_as_lines(const MappedFile& file,
                                                               [[maybe_unused]] std::size_t most) {
  const std::string& name = file.path().native();
#ifdef LORA_WITH_PARQUET
  Unpacked content(name, file.bytes().size());
  try {
    write_rows(file, name, most, content);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // of Arrow, which returns others
    fail<FormatError>(name, ": the Parquet file can't be read: ", shortened(error.what(), 300));
  }
  return std::make_shared<const MappedFile>(content.file(), file.path());
#else
  fail<FormatError>(name, ": a Parquet file, which this program was built without (Arrow was not found; see ",
                    "LORA_WITH_PARQUET in docs/install.md); expected JSON records: in Python, ",
                    "datasets.Dataset.from_parquet(NAME).to_json('NAME.jsonl') writes them");
#endif
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE std::shared_ptr<const MappedFile> parquet_as_lines(const MappedFile& file) {
  return detail::parquet_as_lines(file, detail::most_for_parquet);
}

}  // namespace lora::io
