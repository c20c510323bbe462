/// The engine: devices and their memory, contexts, streams with a thread each, events, faults and counts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine.hpp"
#include "settings.hpp"

#pragma GCC visibility push(default)
#include "stand_in.h"
#pragma GCC visibility pop

namespace stand_in {

using Time = std::chrono::steady_clock::time_point;
using Address = std::uintptr_t;

/// How much of each stream's work is known to be over: stream's number -> number of its tasks.
using Clock = std::map<int, std::uint64_t>;

struct Context;
struct Stream;

/// One recording of an event.
struct Record {
  Clock clock;  // what is over once it is done
  bool done = false;
  Time when;
  Stream* stream = nullptr;
  int number = 0;  // of the stream
};

struct Event {
  std::uint32_t flags = 0;
  bool extended = false;  // aclrtCreateEventExWithFlag
  bool flagged = false;   // aclrtCreateEventWithFlag
  std::shared_ptr<Record> last;
};

/// Memory that a stream's tasks used last.
struct Access {
  Address from = 0;
  Address to = 0;
  bool writes = false;
  std::uint64_t task = 0;
  std::string what;
};

struct Queued {
  Task task;
  bool hangs = false;
  bool fails = false;
  std::shared_ptr<Record> record;  // to mark as done
  std::shared_ptr<Record> awaited;
};

struct Stream {
  int number = 0;
  Context* context = nullptr;
  std::deque<Queued> queue;
  std::uint64_t submitted = 0;
  std::uint64_t finished = 0;
  int error = 0;
  bool stops = false;  // once a task has failed; else the tasks behind it run all the same
  bool stopping = false;
  bool blocked = false;  // in a task that never ends
  Clock clock;
  std::unordered_map<std::uint64_t, Access> accesses;
  std::string error_text;
  std::mt19937_64 random;
  std::condition_variable work;
  std::thread thread;
};

struct Context {
  int device = 0;
  bool primary = false;
  int error = 0;
  Stream* standard = nullptr;  // the default stream, once it is used
  std::set<Stream*> streams;
  std::map<int, std::int64_t> options;
};

/// Address space of a device's memory: the host's view, which nobody may touch, and the engine's own.
struct Arena {
  Address base = 0;
  std::size_t size = 0;
  unsigned char* inside = nullptr;  // the same memory; null in a dry run
  int device = 0;
  bool reservation = false;  // of aclrtReserveMemAddress: its memory comes with aclrtMapMem
  bool huge = false;         // for huge pages
};

/// Memory that is live.
struct Allocation {
  Address base = 0;
  std::size_t size = 0;
  std::size_t room = 0;  // with what lies behind
  std::size_t gap = 0;   // its offset in the arena, and the bytes that it takes there
  std::size_t taken = 0;
  int device = 0;  // -1: pinned memory of the host
  bool mapped = false;
  const Arena* arena = nullptr;
};

struct Physical {
  std::vector<std::size_t> pages;  // offsets
  std::size_t size = 0;
  int device = 0;
  bool huge = false;
  Address mapped = 0;
};

struct Device {
  int references = 0;
  bool lost = false;
  int overflow_mode = 0;  // ACL_RT_OVERFLOW_MODE_SATURATION until it is set
  std::unique_ptr<Context> primary;
  std::unique_ptr<Arena> arena;
  std::map<std::size_t, std::size_t> gaps;  // free parts of the arena: offset -> size
  int arena_file = -1;
  int physical_file = -1;
  unsigned char* physical_inside = nullptr;
  std::vector<std::size_t> free_pages;
  std::size_t used = 0;
  std::size_t reserved = 0;  // by communicators
  std::set<int> peers;
};

inline constexpr std::size_t kPage = std::size_t{2} << 20;

/// Address space that nobody may touch, and back.
Address reserve_memory(std::size_t size);
void unmap_memory(Address base, std::size_t size);
/// For the message of whoever touches it nevertheless.
void forbid(Address from, Address to);
void allow(Address from);

class Core final : public Engine {
 public:
  static Core& get();

  // Engine
  int failure(int code, const std::string& text) override;
  void fault(const std::string& text) override;
  std::int64_t setting(const char* name) override;
  int ready(const char* caller) override;
  int device() override;
  int submit(aclrtStream stream, Task task) override;
  bool busy(aclrtStream stream) override;
  unsigned char* reach(const void* address, std::size_t bytes, bool host) override;
  bool reserve(int device, std::int64_t bytes) override;
  void made(Kind kind, const void* object) override;
  bool gone(Kind kind, const void* object) override;
  bool lives(Kind kind, const void* object) override;
  bool fixed_order() override;
  void opened(const char* library) override;
  std::string mixed() override;

  const char* last_text();
  /// The thread's last error, and whether it is to be forgotten.
  int last_code(bool forget);
  std::size_t take_faults(char* text, std::size_t size);

  // Starting and ending
  int init();
  int finalize();
  bool initialized();
  void report_leaks();
  int device_count() const { return static_cast<int>(devices_.size()); }

  // Devices and contexts
  int set_device(int id);
  int reset_device(int id, bool force);
  int create_context(aclrtContext* context, int id);
  int destroy_context(aclrtContext context);
  int set_context(aclrtContext context);
  Context* context();
  bool lost(int id);
  void set_overflow_mode(int mode);
  int overflow_mode();

  // Streams and events
  int create_stream(aclrtStream* stream);
  int destroy_stream(aclrtStream stream, bool force);
  int synchronize(const char* caller, aclrtStream stream, std::int64_t timeout_ms);
  int synchronize_device(const char* caller, std::int64_t timeout_ms);
  int query(aclrtStream stream, bool* complete);
  int stream_number(aclrtStream stream, int* number);
  int set_failure_mode(aclrtStream stream, bool stops);
  int create_event(aclrtEvent* event, std::uint32_t flags, bool flagged, bool extended);
  int destroy_event(aclrtEvent event);
  int record(aclrtEvent event, aclrtStream stream);
  int reset(aclrtEvent event, aclrtStream stream);
  int wait(aclrtStream stream, aclrtEvent event);
  int synchronize_event(const char* caller, aclrtEvent event, std::int64_t timeout_ms);
  int query_event(aclrtEvent event, bool* complete);
  int event_time(const char* caller, aclrtEvent event, Time* when);

  // Memory
  int allocate(const char* caller, void** pointer, std::size_t size, std::size_t room);
  int release(void* pointer);
  int allocate_host(void** pointer, std::size_t size);
  int release_host(void* pointer);
  int copy(const char* caller, void* to, std::size_t most, const void* from, std::size_t count, aclrtMemcpyKind kind,
           bool async, aclrtStream stream);
  int fill(const char* caller, void* to, std::size_t most, int value, std::size_t count, bool async,
           aclrtStream stream);
  int memory(std::size_t* free, std::size_t* total);
  /// The device that has the address, or -1.
  int owner(const void* address);
  int reserve_address(void** address, std::size_t size, bool huge);
  int release_address(void* address);
  int allocate_physical(aclrtDrvMemHandle* handle, std::size_t size, int device, bool huge);
  int release_physical(aclrtDrvMemHandle handle);
  int map(void* address, std::size_t size, aclrtDrvMemHandle handle);
  int unmap(void* address);

  Settings settings;
  std::atomic<std::int64_t> options[2] = {0, 0};  // of the process, by aclrtSetSysParamOpt
  std::mutex mutex;
  StandInCounts counts{};
  struct Use {
    std::uint64_t launches = 0;
    double flops = 0;
    double bytes = 0;
  };
  std::map<std::string, Use> operators;

 private:
  Core();
  using Lock = std::unique_lock<std::mutex>;

  void note(const std::string& text);  // the lock is held
  int usable(const char* caller, const Context* context);
  Context* thread_context() const;
  Event* find_event(const char* caller, aclrtEvent handle, int* code);
  int owner_of(Address address) const;
  Stream* find_stream(const char* caller, aclrtStream stream, int* code);
  Stream* start_stream(Context* context);
  void remove_stream(Stream* stream);
  void stop_stream(Stream& stream, bool force, Lock& lock);
  void stop_context(Context& context, bool force, Lock& lock);
  void work(Stream* stream);
  int perform(Stream& stream, Queued& next, Lock& lock);
  bool wait_for(Stream& stream, std::uint64_t task, std::int64_t timeout_ms, Lock& lock);
  int surface(const char* caller, Stream& stream);
  void learn(const Clock& clock);
  std::uint64_t push(Stream& stream, Queued item);
  void order(const Stream* stream, const Clock& known, const std::string& who, const Touch& touch);
  std::string late_use(Address from, Address to);
  bool pending(Address from, Address to, bool writes_alone);
  unsigned char* inside(Address address, std::size_t bytes, int device, std::string* why);
  std::string place(Address address);
  Device& prepare_device(int id);
  void drop_device(Device& device);
  void release_device(int id, const char* caller);
  const Arena* arena_of(Address address) const;
  void bury(std::shared_ptr<void> object);
  void forget(Address from, Address to);
  void leaks(std::vector<std::string>& lines);

  bool initialized_ = false;
  bool finalized_ = false;
  bool dry_ = false;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<Arena>> reservations_;
  std::map<Address, Allocation> live_;
  std::deque<std::pair<Address, Address>> freed_;
  std::unordered_map<aclrtDrvMemHandle, std::unique_ptr<Physical>> physical_;
  std::map<std::pair<int, const void*>, bool> objects_;
  std::set<Context*> contexts_;
  std::set<std::string> libraries_;  // of operators
  std::unordered_map<Stream*, std::unique_ptr<Stream>> streams_;
  Clock host_;
  int next_stream_ = 0;
  std::condition_variable changed_;
  std::vector<std::string> faults_;
  std::size_t fault_count_ = 0;
  // What was destroyed keeps its address for a while, so that its handle is seen to be an old one.
  std::deque<std::shared_ptr<void>> buried_;
  std::vector<std::pair<void*, std::size_t>> grave_;  // host memory to be unmapped when nothing runs
};

}  // namespace stand_in
