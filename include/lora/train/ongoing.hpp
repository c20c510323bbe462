#pragma once

#include <functional>

#include "lora/comm/communicator.hpp"
#include "lora/run/event.hpp"
#include "lora/run/run_state.hpp"
#include "lora/train/learner.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/saving.hpp"

namespace lora::train {

/// A run between its first step and its last: what is prepared, what computes, what is saved, and how far it has come.
/// Refers to all of it.
template <AnyDevice D, class T>
struct Ongoing {
  D& dev;
  comm::Communicator<D>& comm;
  Prepared& prepared;
  Learner<D, T>& learner;
  Saving<D, T>& saving;
  run::RunState& state;
  std::function<void(const run::Event&)> tell;  ///< takes events; on one rank only it does anything with them

  const settings::Config& config() const { return prepared.config; }
  bool is_over() const { return state.ended_early || state.step == prepared.plan.total(); }
};

}  // namespace lora::train
