#pragma once

#include <string_view>
#include <vector>

#include "lora/io/tensorboard.hpp"

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

}  // namespace lora::test
