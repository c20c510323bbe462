#pragma once

#include <algorithm>
#include <iterator>

#include "lora/comm/communicator.hpp"

namespace lora::train {

/// What a rank has found after a step that bears on what is done next.
struct Verdict {
  bool evaluates = true;     ///< an evaluation that is due is wanted
  bool interrupted = false;  ///< an evaluation was, so that it is due still
  bool finishes = false;     ///< a callback has ended the run
  int stopped_by = 0;        ///< the value of the stop flag

  static constexpr Index numbers = 4;  ///< that a rank tells
};

/// What all ranks do next: what any of them has found, and an evaluation if all of them want it.
inline Verdict agreed(comm::Ranks& ranks, const Verdict& own) {
  if (ranks.size() == 1) return own;
  const double numbers[Verdict::numbers] = {own.evaluates ? 0.0 : 1.0, own.interrupted ? 1.0 : 0.0,
                                            own.finishes ? 1.0 : 0.0, static_cast<double>(own.stopped_by)};
  constexpr std::size_t count = std::size(numbers);
  double most[count] = {};
  const auto all = ranks.all_gather(numbers);
  for (std::size_t i = 0; i < all.size(); ++i) most[i % count] = std::max(most[i % count], all[i]);
  return {most[0] == 0, most[1] != 0, most[2] != 0, static_cast<int>(most[3])};
}

}  // namespace lora::train
