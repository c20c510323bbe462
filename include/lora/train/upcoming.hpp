#pragma once

#include <future>
#include <utility>
#include <vector>

#include "lora/inputs/records.hpp"
#include "lora/train/plan.hpp"

namespace lora::train {

/// A planned step and its micro-batches, of each unit.
struct PreparedStep {
  PlannedStep plan;
  std::vector<std::vector<data::Batch>> units;
};

/// The steps of a run one after the other, each encoded by another thread while the one before it computes. Only that
/// thread uses the plan's order and the records meanwhile; both outlive this.
class Upcoming {
 public:
  /// `own`: the units that this rank forms.
  Upcoming(Plan& plan, const inputs::Records& records, comm::OwnUnits own)
      : plan_(plan), records_(records), own_(own) {}

  /// Waits for step `step` and begins the next one.
  PreparedStep take(Index step) {
    PreparedStep prepared = next_.valid() ? next_.get() : prepare(step);
    if (step + 1 < plan_.total())
      next_ = std::async(std::launch::async, [this, next = step + 1] { return prepare(next); });
    return prepared;
  }

  /// Forgets the step that was begun, so that the plan may change.
  void forget() {
    if (next_.valid()) next_.wait();
    next_ = {};
  }

 private:
  PreparedStep prepare(Index step) {
    PreparedStep prepared{plan_.at(step), {}};
    prepared.units = batches_of(records_, prepared.plan, own_);
    return prepared;
  }

  Plan& plan_;
  const inputs::Records& records_;
  comm::OwnUnits own_;
  std::future<PreparedStep> next_;  // destroyed before what it reads
};

}  // namespace lora::train
