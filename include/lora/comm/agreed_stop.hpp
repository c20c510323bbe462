#pragma once

#include <functional>
#include <utility>

#include "lora/comm/communicator.hpp"
#include "lora/core/scalar.hpp"

namespace lora::comm {

/// The stop of ranks that work on their own, each at its pace: one that is told to stop has all stop after at most
/// `every` more pieces of work.
class AgreedStop {
 public:
  /// `common`: pieces that every rank has, some of them one more. `every`: 1 or more. `told`: whether this rank is to
  /// stop.
  AgreedStop(Ranks& ranks, Index common, Index every, std::function<bool()> told)
      : ranks_(ranks), common_(common), every_(every), told_(std::move(told)) {}

  /// Whether this rank does no more.
  bool stopped() {
    own_stop_ = own_stop_ || told_();  // whoever has broken off once can't say later that it goes on
    return all_stop_ || own_stop_;
  }
  /// After each piece. It waits for the others after each `every` of those that all have.
  void did_one() {
    if (!all_stop_ && ++done_ <= common_ && done_ % every_ == 0) agree();
  }
  /// Every rank comes here once, after its last piece or where it was stopped: whether all are stopped.
  bool ends_stopped() {
    if (!all_stop_) agree();
    return all_stop_;
  }

 private:
  void agree() { all_stop_ = ranks_.agree(stopped() ? 1 : 0) != 0; }

  Ranks& ranks_;
  Index common_, every_;
  std::function<bool()> told_;
  Index done_ = 0;
  bool own_stop_ = false, all_stop_ = false;
};

}  // namespace lora::comm
