#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "core.hpp"

namespace stand_in {

namespace {

void join(Clock& into, const Clock& from) {
  for (const auto& [stream, task] : from) {
    std::uint64_t& known = into[stream];
    known = std::max(known, task);
  }
}

std::uint64_t known_of(const Clock& clock, int stream) {
  const auto found = clock.find(stream);
  return found != clock.end() ? found->second : 0;
}

std::uint64_t key_of(Address from, Address to, bool writes) {
  std::uint64_t key = (from * 0x9E3779B97F4A7C15u) ^ ((to << 1 | (writes ? 1u : 0u)) * 0xC2B2AE3D27D4EB4Fu);
  return key ^ (key >> 29);
}

}  // namespace

// Who may use what: all tasks of a stream are in order; a stream is behind others as far as it waited for events, and
// all are behind what the host waited for before it queued them.

void Core::learn(const Clock& clock) {
  join(host_, clock);
  for (auto& [stream, owned] : streams_) {
    const std::uint64_t known = known_of(host_, stream->number);
    std::erase_if(stream->accesses, [known](const auto& entry) { return entry.second.task <= known; });
  }
}

void Core::order(const Stream* stream, const Clock& known, const std::string& who, const Touch& touch) {
  if (settings.check_streams == 0) return;
  const auto from = reinterpret_cast<Address>(touch.address);
  const Address to = from + touch.bytes;
  for (const auto& [other, owned] : streams_) {
    if (other == stream || other->accesses.empty()) continue;
    const std::uint64_t over = known_of(known, other->number);
    if (over >= other->submitted) continue;
    for (const auto& [key, access] : other->accesses) {
      if (access.task <= over || access.to <= from || to <= access.from || !(access.writes || touch.writes)) continue;
      note(who + (touch.writes ? " writes " : " reads ") + touch.what + " while " + access.what +
           (access.writes ? " writes" : " reads") + " the same memory on stream " + std::to_string(other->number) +
           ", with no order between them");
      break;
    }
  }
}

bool Core::pending(Address from, Address to, bool writes_alone) {
  for (const auto& [stream, owned] : streams_) {
    const std::uint64_t over = known_of(host_, stream->number);
    for (const auto& [key, access] : stream->accesses)
      if (access.task > over && access.from < to && from < access.to && (access.writes || !writes_alone)) return true;
  }
  return false;
}

std::string Core::late_use(Address from, Address to) {
  if (settings.late_frees == 0) return {};
  for (const auto& [stream, owned] : streams_) {
    // Of a stream that failed the host cannot learn more.
    if (stream->error != 0 || stream->context->error != 0 ||
        devices_[static_cast<std::size_t>(stream->context->device)].lost)
      continue;
    const std::uint64_t over = known_of(host_, stream->number);
    for (const auto& [key, access] : stream->accesses)
      if (access.task > over && access.from < to && from < access.to)
        return access.what + " on stream " + std::to_string(stream->number);
  }
  return {};
}

void Core::forget(Address from, Address to) {
  for (auto& [stream, owned] : streams_)
    std::erase_if(stream->accesses,
                  [&](const auto& entry) { return entry.second.from < to && from < entry.second.to; });
}

// Streams

Stream* Core::find_stream(const char* caller, aclrtStream handle, int* code) {
  const std::string name = caller;
  Context* context = nullptr;
  {
    // The thread's context, checked.
    *code = 0;
    context = thread_context();
    *code = usable(caller, context);
    if (*code != 0) return nullptr;
  }
  if (handle == nullptr) {
    if (context->standard == nullptr) context->standard = start_stream(context);
    return context->standard;
  }
  auto* stream = static_cast<Stream*>(handle);
  if (streams_.find(stream) == streams_.end()) {
    *code = failure(ACL_ERROR_RT_INVALID_HANDLE, name + ": no such stream");
    note(name + ": a stream that is none, or was destroyed");
    return nullptr;
  }
  if (stream->context != context) {
    *code = failure(ACL_ERROR_RT_STREAM_CONTEXT, name + ": the stream is not of the thread's context");
    return nullptr;
  }
  return stream;
}

Stream* Core::start_stream(Context* context) {
  auto owned = std::make_unique<Stream>();
  Stream* stream = owned.get();
  stream->number = next_stream_++;
  stream->context = context;
  stream->random.seed(static_cast<std::uint64_t>(settings.seed) * 1000003u +
                      static_cast<std::uint64_t>(stream->number));
  streams_.emplace(stream, std::move(owned));
  if (!dry_) stream->thread = std::thread([this, stream] { work(stream); });
  return stream;
}

int Core::create_stream(aclrtStream* out) {
  const Lock lock(mutex);
  if (const int code = usable("aclrtCreateStream", thread_context()); code != 0) return code;
  if (out == nullptr) return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateStream: null");
  if (strikes(settings.fail_stream))
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtCreateStream: no stream left (as was asked for)");
  Context* context = thread_context();
  Stream* stream = start_stream(context);
  context->streams.insert(stream);
  objects_[{static_cast<int>(Kind::stream), stream}] = true;
  *out = stream;
  return 0;
}

int Core::destroy_stream(aclrtStream handle, bool force) {
  Lock lock(mutex);
  const char* const name = force ? "aclrtDestroyStreamForce" : "aclrtDestroyStream";
  auto* stream = static_cast<Stream*>(handle);
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, std::string(name) + ": aclInit was not called");
  if (stream == nullptr || streams_.find(stream) == streams_.end() || stream->context->standard == stream) {
    if (stream != nullptr) note(std::string(name) + ": a stream that is none, or was destroyed");
    return failure(ACL_ERROR_RT_INVALID_HANDLE, std::string(name) + ": no such stream");
  }
  if (!force && known_of(host_, stream->number) < stream->submitted && stream->error == 0 &&
      !devices_[static_cast<std::size_t>(stream->context->device)].lost && stream->context->error == 0)
    note("aclrtDestroyStream: the host did not wait for the stream's work");
  stop_stream(*stream, force, lock);
  stream->context->streams.erase(stream);
  objects_.erase({static_cast<int>(Kind::stream), stream});
  remove_stream(stream);
  return 0;
}

void Core::remove_stream(Stream* stream) {
  const auto found = streams_.find(stream);
  bury(std::move(found->second));
  streams_.erase(found);
}

void Core::stop_stream(Stream& stream, bool force, Lock& lock) {
  if (!force && !dry_) changed_.wait(lock, [&] { return stream.finished >= stream.submitted || stream.blocked; });
  Clock over = stream.clock;
  over[stream.number] = stream.submitted;
  stream.stopping = true;
  stream.work.notify_all();
  changed_.notify_all();
  if (stream.thread.joinable()) {
    lock.unlock();
    stream.thread.join();
    lock.lock();
  }
  for (Queued& left : stream.queue)
    if (left.record != nullptr) left.record->done = true;
  stream.queue.clear();
  changed_.notify_all();
  learn(over);
}

std::uint64_t Core::push(Stream& stream, Queued item) {
  join(stream.clock, host_);
  const std::uint64_t task = ++stream.submitted;
  for (const Touch& touch : item.task.touches) {
    if (touch.bytes == 0) continue;
    order(&stream, stream.clock, item.task.name, touch);
    const auto from = reinterpret_cast<Address>(touch.address);
    Access& access = stream.accesses[key_of(from, from + touch.bytes, touch.writes)];
    access = {from, from + touch.bytes, touch.writes, task, item.task.name};
  }
  if (item.task.run != nullptr && strikes(settings.hang_at)) item.hangs = true;
  stream.queue.push_back(std::move(item));
  stream.work.notify_all();
  return task;
}

int Core::submit(aclrtStream handle, Task task) {
  Lock lock(mutex);
  int code = 0;
  Stream* stream = find_stream(task.name.c_str(), handle, &code);
  if (stream == nullptr) return code;
  Device& device = devices_[static_cast<std::size_t>(stream->context->device)];
  bool fails = false;
  if (task.launch) {
    ++counts.launches;
    counts.casts += static_cast<std::uint64_t>(task.casts);
    counts.flops += task.flops;
    counts.operator_bytes += task.bytes;
    Use& use = operators[task.name];
    ++use.launches;
    use.flops += task.flops;
    use.bytes += task.bytes;
    fails = strikes(settings.kernel_error_at);
    if (strikes(settings.lose_device_at)) {
      device.lost = true;
      for (auto& [one, owned] : streams_) one->work.notify_all();
      changed_.notify_all();
      return 0;  // the host does not know of it yet
    }
  }
  if (settings.check_tails != 0 && task.name.compare(0, 5, "aclnn") == 0) {
    for (const Touch& touch : task.touches) {
      const auto from = reinterpret_cast<Address>(touch.address);
      const auto found = live_.upper_bound(from);
      if (found == live_.begin()) continue;
      const Allocation& one = std::prev(found)->second;
      const Address end = one.base + one.room;
      if (one.device < 0 || from >= end || from + touch.bytes > end) continue;
      if (inside(from, touch.bytes, one.device, nullptr) == nullptr && !dry_) continue;
      const Address needed = from + (touch.bytes + 31) / 32 * 32 + 32;
      if (needed > end && !one.mapped) note(task.name + ": less than 32 bytes of memory behind " + touch.what);
    }
  }
  if (dry_) {
    for (const Touch& touch : task.touches) {
      std::string why;
      const auto from = reinterpret_cast<Address>(touch.address);
      if (owner_of(from) >= 0 || touch.bytes == 0) {
        if (inside(from, touch.bytes, stream->context->device, &why) == nullptr && !why.empty())
          note(task.name + ": " + touch.what + " is " + why);
      } else if (task.launch) {
        note(task.name + ": " + touch.what + " is no device memory");
      }
    }
    return 0;
  }
  Queued item;
  item.task = std::move(task);
  item.fails = fails;
  push(*stream, std::move(item));
  return 0;
}

bool Core::busy(aclrtStream handle) {
  const Lock lock(mutex);
  auto* stream = static_cast<Stream*>(handle);
  if (stream == nullptr && thread_context() != nullptr) stream = thread_context()->standard;
  return stream != nullptr && streams_.find(stream) != streams_.end() && !dry_ && stream->finished < stream->submitted;
}

void Core::work(Stream* stream) {
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // short delays are to be short
  Lock lock(mutex);
  for (;;) {
    stream->work.wait(lock, [stream] { return stream->stopping || !stream->queue.empty(); });
    if (stream->stopping) return;
    Queued next = std::move(stream->queue.front());
    stream->queue.pop_front();
    const bool dead = (stream->error != 0 && stream->stops) || stream->context->error != 0 ||
                      devices_[static_cast<std::size_t>(stream->context->device)].lost;
    if (!dead) {
      const int code = perform(*stream, next, lock);
      if (code != 0 && stream->error == 0) stream->error = code;
    }
    // What a task holds is let go before it is over, and without the lock.
    lock.unlock();
    next.task = Task{};
    lock.lock();
    if (next.record != nullptr) {
      next.record->done = true;
      next.record->when = std::chrono::steady_clock::now();
    }
    ++stream->finished;
    changed_.notify_all();
  }
}

int Core::perform(Stream& stream, Queued& next, Lock& lock) {
  const auto lost_now = [&] { return devices_[static_cast<std::size_t>(stream.context->device)].lost; };
  if (next.awaited != nullptr) {
    changed_.wait(lock, [&] { return next.awaited->done || stream.stopping || lost_now(); });
    return 0;
  }
  if (next.record != nullptr) return 0;
  if (next.hangs) {
    stream.blocked = true;
    stream.work.wait(lock, [&stream] { return stream.stopping; });
    return 0;
  }
  const auto longest = static_cast<std::uint64_t>(std::max<std::int64_t>(settings.delay_us, 0));
  const std::uint64_t draw = stream.random();
  if (longest > 0 && draw % 2 == 0) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(draw / 2 % (longest + 1)));
    lock.lock();
  }
  if (stream.stopping || lost_now()) return 0;
  if (next.fails) {
    stream.error_text = next.task.name + ": exception of a kernel";
    return ACL_ERROR_RT_AICORE_EXCEPTION;
  }
  for (const Touch& touch : next.task.touches) {
    const auto from = reinterpret_cast<Address>(touch.address);
    std::string why;
    const bool host = owner_of(from) < 0;
    if (host && !next.task.launch) continue;  // pageable or pinned; the copies look themselves
    if (touch.bytes == 0 || (!host && inside(from, touch.bytes, stream.context->device, &why) != nullptr)) continue;
    note(next.task.name + ": " + touch.what + " is " + (why.empty() ? "no device memory" : why));
    stream.error_text = next.task.name + ": " + touch.what + " is " + (why.empty() ? "no device memory" : why);
    return ACL_ERROR_RT_AICORE_EXCEPTION;
  }
  lock.unlock();
  const int code = next.task.run != nullptr ? next.task.run() : 0;
  const char* text = code != 0 ? last_text() : nullptr;
  lock.lock();
  if (code != 0) stream.error_text = next.task.name + ": " + (text != nullptr ? text : "exception of a kernel");
  return code;
}

// Waiting

bool Core::wait_for(Stream& stream, std::uint64_t task, std::int64_t timeout_ms, Lock& lock) {
  if (dry_) return true;
  const int device = stream.context->device;
  const auto over = [&] {
    return stream.finished >= task || stream.stopping || devices_[static_cast<std::size_t>(device)].lost;
  };
  if (timeout_ms < 0) {
    changed_.wait(lock, over);
    return true;
  }
  return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), over);
}

int Core::surface(const char* caller, Stream& stream) {
  if (devices_[static_cast<std::size_t>(stream.context->device)].lost)
    return failure(ACL_ERROR_RT_DRV_INTERNAL_ERROR, std::string(caller) + ": the device is lost");
  if (stream.error == 0) return 0;
  stream.context->error = stream.error;
  return failure(stream.error, std::string(caller) + ": " + stream.error_text);
}

int Core::synchronize(const char* caller, aclrtStream handle, std::int64_t timeout_ms) {
  Lock lock(mutex);
  int code = 0;
  Stream* stream = find_stream(caller, handle, &code);
  if (stream == nullptr) return code;
  ++counts.waits;
  Clock over = stream->clock;
  const std::uint64_t task = stream->submitted;
  over[stream->number] = task;
  if (!wait_for(*stream, task, timeout_ms, lock))
    return failure(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, std::string(caller) + ": the stream's work does not end");
  if (code = surface(caller, *stream); code != 0) return code;
  learn(over);
  return 0;
}

int Core::synchronize_device(const char* caller, std::int64_t timeout_ms) {
  Lock lock(mutex);
  Context* context = thread_context();
  if (const int code = usable(caller, context); code != 0) return code;
  ++counts.waits;
  std::vector<Stream*> all;
  for (const auto& [stream, owned] : streams_)
    if (stream->context->device == context->device) all.push_back(stream);
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max<std::int64_t>(timeout_ms, 0));
  for (Stream* stream : all) {
    Clock over = stream->clock;
    over[stream->number] = stream->submitted;
    std::int64_t left = timeout_ms;
    if (timeout_ms >= 0) {
      left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      left = std::max<std::int64_t>(left, 0);
    }
    if (!wait_for(*stream, stream->submitted, left, lock))
      return failure(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, std::string(caller) + ": the device's work does not end");
    if (const int code = surface(caller, *stream); code != 0) return code;
    learn(over);
  }
  return 0;
}

int Core::query(aclrtStream handle, bool* complete) {
  const Lock lock(mutex);
  int code = 0;
  Stream* stream = find_stream("aclrtStreamQuery", handle, &code);
  if (stream == nullptr) return code;
  *complete = dry_ || stream->finished >= stream->submitted;
  if (code = surface("aclrtStreamQuery", *stream); code != 0) return code;
  if (*complete) {
    Clock over = stream->clock;
    over[stream->number] = stream->submitted;
    learn(over);
  }
  return 0;
}

int Core::stream_number(aclrtStream handle, int* number) {
  const Lock lock(mutex);
  int code = 0;
  const Stream* stream = find_stream("aclrtStreamGetId", handle, &code);
  if (stream != nullptr) *number = stream->number;
  return code;
}

int Core::set_failure_mode(aclrtStream handle, bool stops) {
  const Lock lock(mutex);
  int code = 0;
  Stream* const stream = find_stream("aclrtSetStreamFailureMode", handle, &code);
  if (stream == nullptr) return code;
  if (settings.failure_mode == 0)
    return failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtSetStreamFailureMode: not supported");
  stream->stops = stops;
  return 0;
}

// Events

int Core::create_event(aclrtEvent* out, std::uint32_t flags, bool flagged, bool extended) {
  const Lock lock(mutex);
  if (const int code = usable("aclrtCreateEvent", thread_context()); code != 0) return code;
  if (out == nullptr) return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateEvent: null");
  if ((flagged || extended) && (flags == 0 || (flags & ~0x2Bu) != 0))
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateEvent: unknown flags");
  auto* event = new Event{flags, extended, flagged, nullptr};
  objects_[{static_cast<int>(Kind::event), event}] = true;
  *out = event;
  return 0;
}

Event* Core::find_event(const char* caller, aclrtEvent handle, int* code) {
  *code = usable(caller, thread_context());
  if (*code != 0) return nullptr;
  if (objects_.count({static_cast<int>(Kind::event), handle}) != 0) return static_cast<Event*>(handle);
  *code = failure(ACL_ERROR_RT_INVALID_HANDLE, std::string(caller) + ": no such event");
  if (handle != nullptr) note(std::string(caller) + ": an event that is none, or was destroyed");
  return nullptr;
}

int Core::destroy_event(aclrtEvent handle) {
  const Lock lock(mutex);
  if (objects_.erase({static_cast<int>(Kind::event), handle}) == 0) {
    if (handle != nullptr) note("aclrtDestroyEvent: an event that is none, or was destroyed");
    return failure(ACL_ERROR_RT_INVALID_HANDLE, "aclrtDestroyEvent: no such event");
  }
  bury(std::unique_ptr<Event>(static_cast<Event*>(handle)));
  return 0;
}

int Core::record(aclrtEvent handle, aclrtStream on) {
  const Lock lock(mutex);
  int code = 0;
  Event* event = find_event("aclrtRecordEvent", handle, &code);
  if (event == nullptr) return code;
  Stream* stream = find_stream("aclrtRecordEvent", on, &code);
  if (stream == nullptr) return code;
  ++counts.events;
  if (!event->extended && event->last != nullptr && !dry_)
    note("aclrtRecordEvent: an event of aclrtCreateEvent that was recorded before, which is promised for others alone");
  auto record = std::make_shared<Record>();
  record->stream = stream;
  record->number = stream->number;
  event->last = record;
  if (dry_) {
    record->done = true;
    record->when = std::chrono::steady_clock::now();
    return 0;
  }
  join(stream->clock, host_);
  record->clock = stream->clock;
  record->clock[stream->number] = stream->submitted + 1;
  Queued item;
  item.record = record;
  push(*stream, std::move(item));
  return 0;
}

int Core::reset(aclrtEvent handle, aclrtStream on) {
  const Lock lock(mutex);
  int code = 0;
  Event* event = find_event("aclrtResetEvent", handle, &code);
  if (event == nullptr || find_stream("aclrtResetEvent", on, &code) == nullptr) return code;
  if (!event->flagged || (event->flags & ACL_EVENT_SYNC) == 0)
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtResetEvent: not for events of this kind");
  event->last = nullptr;
  return 0;
}

int Core::wait(aclrtStream on, aclrtEvent handle) {
  const Lock lock(mutex);
  int code = 0;
  Stream* stream = find_stream("aclrtStreamWaitEvent", on, &code);
  if (stream == nullptr) return code;
  const Event* event = find_event("aclrtStreamWaitEvent", handle, &code);
  if (event == nullptr) return code;
  if (event->extended && (event->flags & ACL_EVENT_SYNC) == 0)
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtStreamWaitEvent: the event was made without ACL_EVENT_SYNC");
  if (event->last == nullptr || dry_ || settings.ignore_waits != 0) return 0;
  Queued item;
  item.awaited = event->last;
  join(stream->clock, event->last->clock);
  push(*stream, std::move(item));
  return 0;
}

int Core::synchronize_event(const char* caller, aclrtEvent handle, std::int64_t timeout_ms) {
  Lock lock(mutex);
  int code = 0;
  const Event* event = find_event(caller, handle, &code);
  if (event == nullptr) return code;
  ++counts.waits;
  if (event->last == nullptr) return 0;
  const std::shared_ptr<Record> record = event->last;
  Context* context = thread_context();
  const auto over = [&] { return record->done || devices_[static_cast<std::size_t>(context->device)].lost; };
  if (timeout_ms < 0) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), over)) {
    return failure(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, std::string(caller) + ": the event is not reached");
  }
  if (const auto found = streams_.find(record->stream);
      found != streams_.end() && found->first->number == record->number) {
    if (code = surface(caller, *record->stream); code != 0) return code;
  } else if (devices_[static_cast<std::size_t>(context->device)].lost) {
    return failure(ACL_ERROR_RT_DRV_INTERNAL_ERROR, std::string(caller) + ": the device is lost");
  }
  learn(record->clock);
  return 0;
}

int Core::query_event(aclrtEvent handle, bool* complete) {
  const Lock lock(mutex);
  int code = 0;
  const Event* event = find_event("aclrtQueryEventStatus", handle, &code);
  if (event == nullptr) return code;
  *complete = event->last == nullptr || event->last->done;
  if (*complete && event->last != nullptr) {
    if (const auto found = streams_.find(event->last->stream);
        found != streams_.end() && found->first->number == event->last->number) {
      if (code = surface("aclrtQueryEventStatus", *event->last->stream); code != 0) return code;
    }
    learn(event->last->clock);
  }
  return 0;
}

int Core::event_time(const char* caller, aclrtEvent handle, Time* when) {
  const Lock lock(mutex);
  int code = 0;
  const Event* event = find_event(caller, handle, &code);
  if (event == nullptr) return code;
  if (event->extended && (event->flags & ACL_EVENT_TIME_LINE) == 0)
    return failure(ACL_ERROR_RT_PARAM_INVALID,
                   std::string(caller) + ": the event was made without ACL_EVENT_TIME_LINE");
  if (event->last == nullptr || !event->last->done)
    return failure(ACL_ERROR_RT_PARAM_INVALID, std::string(caller) + ": the event is not reached");
  *when = event->last->when;
  return 0;
}

}  // namespace stand_in
