#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/gguf.hpp"

namespace lora::io::detail {

/// GGML's names of its tensor types, by number; empty for unused numbers.
constexpr std::string_view ggml_type_name(std::uint32_t type) {
  constexpr std::string_view names[] = {
      "F32",      "F16",      "Q4_0",    "Q4_1",  "",           "",           "Q5_0",       "Q5_1",
      "Q8_0",     "Q8_1",     "Q2_K",    "Q3_K",  "Q4_K",       "Q5_K",       "Q6_K",       "Q8_K",
      "IQ2_XXS",  "IQ2_XS",   "IQ3_XXS", "IQ1_S", "IQ4_NL",     "IQ3_S",      "IQ2_S",      "IQ4_XS",
      "I8",       "I16",      "I32",     "I64",   "F64",        "IQ1_M",      "BF16",       "Q4_0_4_4",
      "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};
  return type < std::size(names) ? names[type] : std::string_view();
}

/// Bytes of a metadata value of a fixed size; 0 for strings and arrays.
constexpr std::size_t gguf_bytes(GgufType type) {
  constexpr std::size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return bytes[static_cast<std::size_t>(type)];
}

LORA_INLINE std::string_view GgufCursor::read_string(std::string_view what) {
  const auto length = read<std::uint64_t>(what);
  const auto text = take(length, what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

LORA_INLINE GgufType GgufCursor::read_type(std::string_view what) {
  const auto type = read<std::uint32_t>(what);
  if (type > static_cast<std::uint32_t>(GgufType::f64)) fail_here(what, " has the unknown type ", type);
  return static_cast<GgufType>(type);
}

LORA_INLINE std::uint64_t GgufCursor::read_count(std::size_t least, std::string_view what) {
  const auto count = read<std::uint64_t>(what);
  if (count > left() / least)
    fail_here(what, " is said to have ", count, " items, but only ", left(), " bytes are left");
  return count;
}

LORA_INLINE std::span<const std::byte> GgufCursor::take(std::uint64_t count, std::string_view what) {
  if (count > left()) fail_here(what, " takes ", count, " bytes, but only ", left(), " are left");
  const auto part = bytes_.subspan(position_, count);
  position_ += part.size();
  return part;
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE Gguf Gguf::open(const Path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return parse(file->bytes(), path.native(), file);
}

LORA_INLINE Gguf Gguf::parse(std::span<const std::byte> bytes, const std::string& name,
                             std::shared_ptr<const MappedFile> file) {
  return Gguf(bytes, name, std::move(file));
}

LORA_INLINE const StoredTensor* Gguf::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &tensors_[place->second];
}

LORA_INLINE Gguf::Gguf(std::span<const std::byte> bytes, const std::string& name,
                       std::shared_ptr<const MappedFile> file)
    : name_(name), file_(std::move(file)) {
  detail::GgufCursor cursor(bytes, name_);
  const auto start = cursor.take(detail::gguf_magic.size(), "the file's mark");
  if (std::memcmp(start.data(), detail::gguf_magic.data(), detail::gguf_magic.size()) != 0)
    fail<FormatError>(name_, ": not a GGUF file");
  const auto version = cursor.read<std::uint32_t>("the version");
  if (version != 2 && version != 3)
    fail<FormatError>(name_, ": GGUF version ", version & 0xFFFFu ? version : version >> 24,
                      version & 0xFFFFu ? "" : ", big-endian,", " is not supported; versions 2 and 3 are");
  const auto tensor_count = cursor.read_count(least_tensor_bytes, "the table of tensors");
  const auto pair_count = cursor.read_count(least_pair_bytes, "the metadata");
  for (std::uint64_t i = 0; i < pair_count; ++i) read_pair(cursor);
  read_tensors(cursor, tensor_count, bytes);
}

LORA_INLINE void Gguf::read_pair(detail::GgufCursor& cursor) {
  const std::string key(cursor.read_string("the name of a key"));
  const GgufType type = cursor.read_type(key);
  const Value value = type == GgufType::array ? read_array(cursor, key) : read_items(cursor, type, false, 1, key);
  if (!metadata_.emplace(key, value).second)
    fail<FormatError>(name_, ": the key ", shortened(key, 100), " appears twice");
}

LORA_INLINE Gguf::Value Gguf::read_array(detail::GgufCursor& cursor, const std::string& key) {
  const GgufType type = cursor.read_type(key);
  if (type == GgufType::array) cursor.fail_here(key, " is an array of arrays, which is not supported");
  const std::size_t least = type == GgufType::string ? sizeof(std::uint64_t) : detail::gguf_bytes(type);
  return read_items(cursor, type, true, cursor.read_count(least, key), key);
}

LORA_INLINE Gguf::Value Gguf::read_items(detail::GgufCursor& cursor, GgufType type, bool is_array, std::uint64_t count,
                                         const std::string& key) {
  if (type != GgufType::string) {
    const Value value{type, is_array, count, cursor.take(count * detail::gguf_bytes(type), key)};
    if (type == GgufType::boolean)
      for (const std::byte b : value.bytes)
        if (b > std::byte{1}) cursor.fail_here(key, " holds a bool that is neither 0 nor 1");
    return value;
  }
  detail::GgufCursor scan = cursor;  // finds the end; the strings are read where they are asked for
  for (std::uint64_t i = 0; i < count; ++i) scan.read_string(key);
  return {type, is_array, count, cursor.take(scan.position() - cursor.position(), key)};
}

LORA_INLINE void Gguf::read_tensors(detail::GgufCursor& cursor, std::uint64_t count, std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> offsets;  // no room is made ahead for a number that only the file says
  for (std::uint64_t i = 0; i < count; ++i) {
    tensors_.push_back(read_description(cursor));
    offsets.push_back(cursor.read<std::uint64_t>(tensors_.back().name));
  }
  if (count == 0) return;

  const auto alignment = get<std::uint32_t>("general.alignment").value_or(detail::gguf_alignment);
  if (!std::has_single_bit(alignment))
    fail<FormatError>(name_, ": general.alignment is ", alignment, ", which is no power of two");
  const std::size_t begin = (cursor.position() + alignment - 1) / alignment * alignment;
  const auto data = bytes.subspan(std::min(begin, bytes.size()));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    StoredTensor& tensor = tensors_[i];
    const auto size = static_cast<std::uint64_t>(bytes_of(tensor.dtype, tensor.shape.count()));
    if (offsets[i] % alignment != 0)
      fail<FormatError>(name_, ": tensor ", shortened(tensor.name, 100), " begins at byte ", offsets[i],
                        " of the data, which is no multiple of the alignment ", alignment);
    if (offsets[i] > data.size() || size > data.size() - offsets[i])
      fail<FormatError>(name_, ": tensor ", shortened(tensor.name, 100), " takes ", size, " bytes from byte ",
                        offsets[i], " of the data on, but there are only ", data.size(), "; the file is cut short");
    tensor.bytes = data.subspan(offsets[i], size);
    tensor.file = file_;
  }
  index_tensors();
}

LORA_INLINE StoredTensor Gguf::read_description(detail::GgufCursor& cursor) const {
  StoredTensor tensor;
  tensor.name = cursor.read_string("the name of a tensor");
  const std::string where = concat(name_, ": tensor ", shortened(tensor.name, 100));
  const auto rank = cursor.read<std::uint32_t>(tensor.name);
  if (rank > Shape::max_rank)
    fail<FormatError>(where, " has ", rank, " extents; at most ", Shape::max_rank, " are supported");
  std::array<Index, Shape::max_rank> extents{};
  for (std::uint32_t axis = 0; axis < rank; ++axis) {
    const auto extent = cursor.read<std::uint64_t>(tensor.name);
    if (!std::in_range<Index>(extent)) fail<FormatError>(where, " has the extent ", extent);
    extents[axis] = static_cast<Index>(extent);
  }
  for (std::uint32_t axis = rank; axis > 0; --axis) tensor.shape.push_back(extents[axis - 1]);

  const auto type = cursor.read<std::uint32_t>(tensor.name);
  const auto dtype = detail::ggml_dtype(type);
  if (!dtype) {
    const auto known = detail::ggml_type_name(type);
    fail<FormatError>(
        where, " has the type ", known.empty() ? concat("number ", type) : std::string(known),
        ", which is not supported; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are");
  }
  tensor.dtype = *dtype;
  const Index row = rank > 0 ? extents[0] : 1;
  if (row % block_elements(*dtype) != 0)
    fail<FormatError>(where, " has rows of ", row, " values, but ", lora::name_of(*dtype), " holds them in blocks of ",
                      block_elements(*dtype));
  if (!detail::checked_bytes(*dtype, tensor.shape))
    fail<FormatError>(where, ": the product of the extents ", to_string(tensor.shape), " overflows");
  return tensor;
}

LORA_INLINE void Gguf::index_tensors() {
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (i > 0 && tensors_[i - 1].bytes.data() + tensors_[i - 1].bytes.size() > tensors_[i].bytes.data())
      fail<FormatError>(name_, ": tensors ", shortened(tensors_[i - 1].name, 100), " and ",
                        shortened(tensors_[i].name, 100), " overlap");
    if (!places_.emplace(tensors_[i].name, i).second)
      fail<FormatError>(name_, ": tensor ", shortened(tensors_[i].name, 100), " appears twice");
  }
}

}  // namespace lora::io
