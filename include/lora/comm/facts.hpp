#pragma once

#include <span>
#include <string>
#include <vector>

#include "lora/comm/communicator.hpp"

namespace lora::comm {

/// Something that all ranks must have the same, such as a setting or the checksum of a file.
struct Fact {
  std::string name, value;
};

/// The text that `rank` gives; what others give does not matter.
/// Throws   Error for one of more than 256 MiB
std::string text_of(Ranks& ranks, int rank, const std::string& text);

/// Compares this rank's facts with those of all others, by checksums. The names tell a fact, so that ranks of another
/// version differ in those.
/// Throws   ConfigError, on every rank, with the first fact in which ranks differ and the values of two of them
void expect_same(Ranks& ranks, const std::vector<Fact>& facts);

}  // namespace lora::comm

#ifndef LORA_COMPILED
#  include "lora/comm/facts.ipp"
#endif
