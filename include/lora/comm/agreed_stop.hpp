#pragma once

#include <functional>
#include <utility>

#include "lora/comm/communicator.hpp"
#include "lora/core/scalar.hpp"

namespace lora::comm {

/// The stop of ranks that work on their own, each at its pace: one that is told to stop has all stop before they have
/// done `every` more pieces of work.
class AgreedStop {
 public:
  /// `told`: whether this rank is to stop. `common`: pieces that every rank has, some of them more.
  AgreedStop(Ranks& ranks, Index common, Index every, std::function<bool()> told)
      : ranks_(ranks), common_(common), every_(every), told_(std::move(told)) {}

  /// Whether this rank does no more.
  bool stopped() {
    own_ = own_ || told_();
    return all_ || own_;
  }
  /// Behind each piece. It waits for the others now and then.
  void did_one() {
    if (!all_ && ++done_ <= common_ && done_ % every_ == 0) agree();
  }
  /// Once, behind the last piece or where it was stopped: whether all are stopped.
  bool ends_stopped() {
    if (!all_) agree();
    return all_;
  }

 private:
  void agree() { all_ = ranks_.agree(stopped() ? 1 : 0) != 0; }

  Ranks& ranks_;
  Index common_, every_;
  std::function<bool()> told_;
  Index done_ = 0;
  bool own_ = false, all_ = false;
};

}  // namespace lora::comm
