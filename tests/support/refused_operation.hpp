#pragma once

#include <vector>

#include "lora/io/files/file_system.hpp"

namespace lora::test {

/// While it lives, operations of one kind fail with an error, or are only counted where that is 0.
class RefusedOperation final : public io::FileHook {
 public:
  using Kind = io::FileOperation::Kind;

  RefusedOperation(Kind kind, int error) : kind_(kind), error_(error), former_(io::set_file_hook(this)) {}
  RefusedOperation(const RefusedOperation&) = delete;
  RefusedOperation& operator=(const RefusedOperation&) = delete;
  ~RefusedOperation() override { io::set_file_hook(former_); }

  io::FileVerdict before(const io::FileOperation& operation) override {
    if (operation.kind != kind_) return {};
    paths.push_back(operation.path);
    return {error_};
  }
  void after(const io::FileOperation& operation) override { done += operation.kind == kind_; }

  std::vector<io::Path> paths;  ///< of the operations of that kind
  int done = 0;                 ///< of them, how many succeeded

 private:
  Kind kind_;
  int error_;
  io::FileHook* former_;
};

}  // namespace lora::test
