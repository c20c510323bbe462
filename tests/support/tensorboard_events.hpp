#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/tensorboard.hpp"

namespace lora::test {

/// The steps of an event file's records, whose checksums must hold; -1 at the end if bytes are left over.
inline std::vector<Index> steps_of_events(std::string_view bytes) {
  std::vector<Index> steps;
  while (const auto record = io::detail::first_record(bytes)) {
    steps.push_back(io::detail::step_of_event(record->substr(12)));
    bytes.remove_prefix(record->size());
  }
  if (!bytes.empty()) steps.push_back(-1);
  return steps;
}

/// Reads a protocol buffer message field by field: its number, and the bytes of its value.
inline std::vector<std::pair<std::uint64_t, std::string_view>> fields_of(std::string_view message) {
  std::vector<std::pair<std::uint64_t, std::string_view>> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t number = 0;
    for (unsigned shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      number |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    return number;
  };
  while (at < message.size()) {
    const std::uint64_t tag = varint();
    const std::size_t begin = at;
    std::size_t length = tag % 8 == 1 ? 8 : 4;
    if (tag % 8 == 0) {
      varint();
      length = at - begin;
    }
    if (tag % 8 == 2) length = varint();
    const std::size_t value = tag % 8 == 2 ? at : begin;
    fields.emplace_back(tag / 8, message.substr(value, length));
    at = value + length;
  }
  return fields;
}

/// The records of an event file, a line each: the step, then tag and value of each number; of the tags `without_value`
/// the tag alone. "left over" at the end if bytes are.
inline std::vector<std::string> lines_of_events(std::string_view bytes,
                                                const std::set<std::string_view>& without_value) {
  std::vector<std::string> lines;
  while (const auto record = io::detail::first_record(bytes)) {
    bytes.remove_prefix(record->size());
    const std::string_view message = record->substr(12, record->size() - 16);
    std::string line = concat(io::detail::step_of_event(message));
    for (const auto& [number, summary] : fields_of(message)) {
      if (number != 5) continue;
      for (const auto& value : fields_of(summary)) {
        std::string_view tag, scalar;
        for (const auto& [part, content] : fields_of(value.second)) (part == 1 ? tag : scalar) = content;
        line += concat(" ", tag);
        if (without_value.count(tag) != 0) continue;
        float read = 0;
        if (scalar.size() != sizeof read) line += " of another type";
        std::memcpy(&read, scalar.data(), std::min(scalar.size(), sizeof read));
        line += concat("=", read);
      }
    }
    lines.push_back(std::move(line));
  }
  if (!bytes.empty()) lines.emplace_back("left over");
  return lines;
}

}  // namespace lora::test
