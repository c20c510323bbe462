#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/safetensors.hpp"

namespace lora::io::detail {

/// The dtypes supported in safetensors; the quantized ones exist only in GGUF.
LORA_INLINE std::optional<DType> safetensors_dtype(std::string_view name) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8})
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE std::string weights_by_other_names(const Path& folder) {
  std::vector<std::string> parts, others;
  for (const Path& file : entries_of(folder)) {
    const std::string name = file.filename().native();
    if (name.ends_with(".safetensors")) parts.push_back(name);
    if (name.ends_with(".gguf") || name == "pytorch_model.bin" || name.starts_with("pytorch_model-") ||
        (name.starts_with("consolidated") && name.ends_with(".pth")))
      others.push_back(name);
  }
  if (!parts.empty())
    return concat("; it holds ", listed(parts),
                  ": a single file has to be called model.safetensors, and several need the index that came with them");
  if (!others.empty())
    return concat("; it holds ", listed(others), ": save_pretrained of transformers makes a model.safetensors of ",
                  "weights in PyTorch's files, and a .gguf file is given by its own name");
  return {};
}

LORA_INLINE Safetensors Safetensors::open(const Path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (is_there(path / "model.safetensors")) return open_file(path / "model.safetensors");
    if (is_there(path / "model.safetensors.index.json")) return open_shards(path / "model.safetensors.index.json");
    fail<IoError>("no model.safetensors or model.safetensors.index.json in ", path.native(),
                  weights_by_other_names(path));
  }
  return path.native().ends_with(".index.json") ? open_shards(path) : open_file(path);
}

LORA_INLINE Safetensors Safetensors::parse(std::span<const std::byte> bytes, const std::string& name,
                                           std::shared_ptr<const MappedFile> file) {
  Safetensors result;
  result.read(bytes, name, std::move(file));
  return result;
}

LORA_INLINE const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &tensors_[place->second];
}

LORA_INLINE Safetensors Safetensors::open_file(const Path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return parse(file->bytes(), path.native(), file);
}

LORA_INLINE Safetensors Safetensors::open_shards(const Path& index) {
  const std::string where = index.native();
  const JsonFile json(index);
  const auto map = json->find("weight_map");
  if (!map || !map->json().is_object()) json->fail("\"weight_map\" must be an object of tensor names");
  std::map<std::string, std::vector<std::string>> shards;  // shard → names of its tensors
  map->for_each_field([&](const std::string& name, const JsonView& shard) {
    const Path plain = shard.as<std::string>();
    if (plain.empty() || plain.filename() != plain || plain == "." || plain == "..")
      json->fail("tensor ", name, " is said to be in \"", plain.native(),
                 "\", which is not the name of a file beside the index");
    shards[plain.native()].push_back(name);
  });

  const auto folder = index.parent_path();
  std::vector<std::string> missing;
  for (const auto& [shard, names] : shards) {
    std::error_code unreadable;
    if (!std::filesystem::exists(folder / shard, unreadable) && !unreadable) missing.push_back(shard);
  }
  if (!missing.empty())
    fail<IoError>(where, ": missing shards: ", listed(missing), "; the model was not downloaded or copied completely");

  Safetensors result;
  for (const auto& [shard, names] : shards) {
    const std::size_t before = result.tensors_.size();
    auto file = std::make_shared<const MappedFile>(folder / shard);
    result.read(file->bytes(), file->path().native(), file);
    for (const std::string& name : names) {
      const auto place = result.places_.find(name);
      if (place == result.places_.end() || place->second < before) missing.push_back(name);
    }
    if (!missing.empty())
      fail<FormatError>(file->path().native(), ": missing tensors that the index lists: ", listed(missing));
  }
  return result;
}

LORA_INLINE void Safetensors::read(std::span<const std::byte> bytes, const std::string& name,
                                   std::shared_ptr<const MappedFile> file) {
  if (bytes.size() < prefix_bytes)
    fail<FormatError>(name, ": ", bytes.size(), " bytes are too few for a safetensors file");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), prefix_bytes);
  if (header_bytes > max_header_bytes)
    fail<FormatError>(name, ": the header is said to take ", header_bytes, " bytes, more than the ", max_header_bytes,
                      " allowed");
  if (header_bytes > bytes.size() - prefix_bytes)
    fail<FormatError>(name, ": the header is said to take ", header_bytes, " bytes but only ",
                      bytes.size() - prefix_bytes, " follow; the file is cut short");
  const std::size_t header_size = header_bytes;
  const auto data = bytes.subspan(prefix_bytes + header_size);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + prefix_bytes, header_size);
  const Json header = parse_json(text, concat(name, " (header)"));
  if (!header.is_object()) fail<FormatError>(name, ": the header must be a JSON object");

  const std::size_t before = tensors_.size();
  for (const auto& [key, value] : json_fields(header)) {
    if (key == "__metadata__") {
      check_metadata(JsonView(value, name, key));
    } else {
      tensors_.push_back(read_entry(key, JsonView(value, concat(name, ": tensor ", key)), data));
      tensors_.back().file = file;
    }
  }
  const auto first = tensors_.begin() + static_cast<std::ptrdiff_t>(before);
  std::sort(first, tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  check_layout({first, tensors_.end()}, data, name);
  for (std::size_t i = before; i < tensors_.size(); ++i) {
    const auto [place, added] = places_.emplace(tensors_[i].name, i);
    if (!added) {
      const auto& other = tensors_[place->second].file;
      fail<FormatError>(name, ": tensor ", tensors_[i].name, " is also in ",
                        other ? other->path().native() : std::string("another file"));
    }
  }
}

LORA_INLINE void Safetensors::check_metadata(const JsonView& metadata) {
  if (!metadata.json().is_object())
    fail<FormatError>(metadata.where(), ": \"", metadata.name(), "\" must be an object");
  metadata.for_each_field([](const std::string&, const JsonView& value) { (void)value.as<std::string>(); });
}

LORA_INLINE StoredTensor Safetensors::read_entry(const std::string& key, const JsonView& entry,
                                                 std::span<const std::byte> data) {
  if (!entry.json().is_object()) fail<FormatError>(entry.place(), " must be described by an object");
  for (const auto& [field, unused] : json_fields(entry.json()))
    if (field != "dtype" && field != "shape" && field != "data_offsets") entry.fail("unknown field \"", field, "\"");

  StoredTensor tensor;
  tensor.name = key;
  const auto dtype_name = entry.at<std::string>("dtype");
  const auto dtype = detail::safetensors_dtype(dtype_name);
  if (!dtype) entry.fail("dtype \"", dtype_name, "\" is not supported");
  tensor.dtype = *dtype;

  const auto extents = entry.at<std::vector<Index>>("shape");
  if (extents.size() > Shape::max_rank)
    entry.fail(extents.size(), " extents; at most ", Shape::max_rank, " are supported");
  for (const Index extent : extents) {
    if (extent < 0) entry.fail("negative extent ", extent);
    tensor.shape.push_back(extent);
  }
  const auto size = detail::checked_bytes(tensor.dtype, tensor.shape);
  if (!size) entry.fail("the product of the extents ", to_string(tensor.shape), " overflows");

  const auto offsets = entry.at<std::vector<std::uint64_t>>("data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) entry.fail("\"data_offsets\" must be a begin and an end");
  if (offsets[1] > data.size())
    fail<FormatError>(entry.place(), " ends at byte ", offsets[1], " of the data, but there are only ", data.size(),
                      "; the file is cut short");
  if (offsets[1] - offsets[0] != static_cast<std::uint64_t>(*size))
    entry.fail(dtype_name, " ", to_string(tensor.shape), " takes ", *size, " bytes, but the data_offsets hold ",
               offsets[1] - offsets[0]);
  tensor.bytes = data.subspan(static_cast<std::size_t>(offsets[0]), static_cast<std::size_t>(*size));
  return tensor;
}

LORA_INLINE void Safetensors::check_layout(std::span<const StoredTensor> tensors, std::span<const std::byte> data,
                                           const std::string& name) {
  const std::byte* end = data.data();
  const auto offset_of = [&](const std::byte* place) { return place - data.data(); };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::byte* begin = tensors[i].bytes.data();
    if (begin < end)
      fail<FormatError>(name, ": tensors ", tensors[i - 1].name, " and ", tensors[i].name, " overlap at byte ",
                        offset_of(begin), " of the data");
    if (begin > end)
      fail<FormatError>(name, ": bytes ", offset_of(end), " to ", offset_of(begin), " of the data, before ",
                        tensors[i].name, ", belong to no tensor");
    end = begin + tensors[i].bytes.size();
  }
  if (end != data.data() + data.size())
    fail<FormatError>(name, ": ", data.size() - static_cast<std::size_t>(offset_of(end)),
                      " bytes at the end belong to no tensor");
}

LORA_INLINE SafetensorsWriter::SafetensorsWriter(Path path, std::vector<TensorDeclaration> tensors,
                                                 const SafetensorsMetadata& metadata)
    : order_(path, std::move(tensors)), file_(std::move(path)) {
  Json header = Json::object();
  auto& entries = header.get_ref<Json::object_t&>();  // appended to directly: a lookup per name would be quadratic
  if (!metadata.empty()) {
    Json values = Json::object();
    for (const auto& [key, value] : metadata) values[key] = value;
    entries.emplace_back("__metadata__", std::move(values));
  }
  Index offset = 0;
  for (const TensorDeclaration& tensor : order_.tensors()) {
    if (block_elements(tensor.dtype) != 1)
      fail<FormatError>(order_.where(tensor.name), ": safetensors cannot hold ", name_of(tensor.dtype));
    if (tensor.name == "__metadata__") fail<FormatError>(order_.where(tensor.name), ": this name is declared twice");
    const Index size = bytes_of(tensor.dtype, tensor.shape.count());
    Json shape = Json::array();
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.shape[axis]);
    Json place = Json::array();
    for (const Index end : {offset, offset + size}) place.push_back(end);
    entries.emplace_back(tensor.name, json_object({{"dtype", std::string(name_of(tensor.dtype))},
                                                   {"shape", std::move(shape)},
                                                   {"data_offsets", std::move(place)}}));
    offset += size;
  }

  std::string text = to_text(header, -1);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data start aligned
  const std::uint64_t size = text.size();
  file_.write(std::as_bytes(std::span(&size, 1)));
  file_.write(text);
}

LORA_INLINE void SafetensorsWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  order_.take(name, bytes.size());
  file_.write(bytes);
}

LORA_INLINE void SafetensorsWriter::settle() {
  order_.expect_complete();
  file_.settle();
}

LORA_INLINE void SafetensorsWriter::commit() {
  settle();
  publish();
  sync_folder(folder_of(file_.path()));
}

}  // namespace lora::io
