#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/path.hpp"

namespace lora::io {

/// Whether a file is one of Apache Parquet, by the four letters that it begins with. Texts and tables may begin with
/// them by chance: what is called so ends with them, too.
bool is_parquet(const Path& name, std::string_view content);

/// The rows of a Parquet file as records of JSON, a line each: row 7 is line 7. They lie in a temporary file; of the
/// Parquet file a few rows are in memory at a time. Structs and maps are objects, lists arrays; days, times and
/// decimals are texts, and so are bytes that are UTF-8; NaN is null.
/// Throws   FormatError for a damaged file, with row and column for what has no JSON, and in a build without Arrow;
///          IoError
std::shared_ptr<const MappedFile> parquet_as_lines(const MappedFile& file);

namespace detail {

/// How much memory one file may take while it is read: lengths in a damaged file may be anything.
constexpr std::size_t most_for_parquet = std::size_t{1} << 30;

/// The same for a file that may take another size.
std::shared_ptr<const MappedFile> parquet_as_lines(const MappedFile& file, std::size_t most);

}  // namespace detail
}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/parquet.ipp"
#endif
