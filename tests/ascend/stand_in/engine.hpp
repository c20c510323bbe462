/// What the other libraries of the stand-in ask of the engine in libascendcl.so. They reach it through one symbol,
/// standInEngine(), so that nothing else need be exported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
#include "vendor.h"
#pragma GCC visibility pop

namespace stand_in {

/// What can be made and must be destroyed.
enum class Kind {
  tensor,
  scalar,
  int_array,
  float_array,
  bool_array,
  tensor_list,
  scalar_list,
  executor,
  stream,
  event,
  context,
  communicator
};

/// Memory that a task uses.
struct Touch {
  const void* address = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
  std::string what;
};

/// What a stream is to do.
struct Task {
  std::string name;
  std::vector<Touch> touches;
  std::function<int()> run;  // 0 or the error that the next synchronization tells
  bool launch = false;       // counts as one
  int casts = 0;
  double flops = 0;
  double bytes = 0;
};

class Engine {
 public:
  /// Sets this thread's text for aclGetRecentErrMsg and returns the code.
  virtual int failure(int code, const std::string& text) = 0;
  /// Notes a breach of the interface for standInTakeFaults.
  virtual void fault(const std::string& text) = 0;
  virtual std::int64_t setting(const char* name) = 0;
  /// 0 where the calling thread may use its device.
  virtual int ready(const char* caller) = 0;
  /// The device of the thread's context, -1 without one.
  virtual int device() = 0;
  /// Queues a task on a stream of the thread's context (null: its default stream).
  virtual int submit(aclrtStream stream, Task task) = 0;
  /// Whether the stream has work that has not ended.
  virtual bool busy(aclrtStream stream) = 0;
  /// Where the stand-in itself reaches device memory or memory of the host; null where the range is not all in one live
  /// allocation (pageable host memory counts as one where `host` is set).
  virtual unsigned char* reach(const void* address, std::size_t bytes, bool host = false) = 0;
  /// Takes that much of a device's memory (or gives it back), with nothing behind it.
  virtual bool reserve(int device, std::int64_t bytes) = 0;
  virtual void made(Kind kind, const void* object) = 0;
  /// Forgets the object; false if there is none such.
  virtual bool gone(Kind kind, const void* object) = 0;
  virtual bool lives(Kind kind, const void* object) = 0;
  /// Whether the calling thread's context and the process ask for sums in a fixed order, as far as `order_of_sums` says
  /// that the framework looks.
  virtual bool fixed_order() = 0;
  /// A library of operators has been opened. Once it is the old one and newer ones, `mixed` says so.
  virtual void opened(const char* library) = 0;
  virtual std::string mixed() = 0;

 protected:
  ~Engine() = default;
};

}  // namespace stand_in

extern "C" {
__attribute__((visibility("default"))) stand_in::Engine* standInEngine(void);
}

namespace stand_in {

inline Engine& engine() { return *standInEngine(); }

}  // namespace stand_in
