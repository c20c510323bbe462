#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/files/read_file.hpp"

namespace lora::io {

/// Where a node begins, counted from 1; columns in bytes.
struct YamlPlace {
  Index line = 1;
  Index column = 1;
};

struct YamlKey {
  std::string name;
  YamlPlace place{};
};

/// A node of a YAML document, its aliases and merge keys resolved. What a scalar means depends on what is expected of
/// it: 1e-4 is a number to most readers of YAML and a text to some, and 1.10 a text where a version is asked for.
struct YamlNode {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  YamlPlace place{};
  std::string text{};              ///< of a scalar
  bool plain = true;               ///< a scalar without quotes, that is no block: it may be a number, or true
  std::vector<YamlKey> keys{};     ///< of a map, in their order
  std::vector<YamlNode> values{};  ///< of a map, or of a list
};

/// Whether a plain scalar is true or false, in YAML 1.1's words: true, yes and on, false, no and off, in small letters,
/// capitals, or with one.
std::optional<bool> yaml_flag(const YamlNode& node);

/// A number as YAML 1.1 writes it in decimals, also without the dot that it asks of one with an exponent, as JSON
/// writes it; nothing for what readers take differently: 010, 0x1F, 1:30, .inf.
std::optional<std::string> yaml_number(std::string_view text);

/// What a message shows of a text that stands where none is expected, and may hold what is not for every eye.
std::string first_word(std::string_view text);

/// "run.yaml:3:5"
std::string place_in(const std::string& where, const YamlPlace& place);

/// Limits for what a file may make of the memory by aliases, and of the stack.
inline constexpr std::size_t yaml_file_limit = std::size_t{256} << 10;
inline constexpr std::size_t most_yaml_nodes = 20'000;
inline constexpr std::size_t most_yaml_bytes = std::size_t{4} << 20;
inline constexpr std::size_t deepest_yaml = 30;

/// Parses a file of one document. `where` names it in errors.
/// Throws   FormatError with file:line:column for what is no YAML, or more than a document of maps, lists and scalars:
///          tags, keys that are no texts or stand there twice, several documents, nothing at all;
///          Error where the library was built without yaml-cpp
YamlNode parse_yaml(std::string_view text, const std::string& where);

/// Throws   IoError, and as parse_yaml
YamlNode read_yaml(const Path& path);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/yaml.ipp"
#endif
