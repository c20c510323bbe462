#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/target.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "support/fuzz_folder.hpp"

namespace fuzz_shard_index {

using namespace lora;

namespace {

/// Two shards of one tensor each.
const test::FuzzFolder& folder() {
  static const test::FuzzFolder folder;
  static const bool made = [] {
    for (const char* name : {"a", "b"}) {
      const std::array<float, 2> values{1, 2};
      io::SafetensorsWriter writer(folder / concat(name, ".safetensors"), {{name, DType::f32, {2}}});
      writer.add(name, std::as_bytes(std::span(values)));
      writer.commit();
    }
    return true;
  }();
  static_cast<void>(made);
  return folder;
}

}  // namespace

/// A model.safetensors.index.json.
LORA_FUZZ_TARGET(shard_index, data, size) {
  folder().put("model.safetensors.index.json", test::text_of(data, size));
  try {
    const auto file = io::Safetensors::open(folder().path());
    if (file.tensors().size() > 2) __builtin_trap();
    for (const auto& tensor : file.tensors())  // of no file but those beside the index
      if (tensor.file->path().parent_path() != folder().path() || tensor.bytes.size() != 8) __builtin_trap();
  } catch (const Error&) {}
}

}  // namespace fuzz_shard_index
