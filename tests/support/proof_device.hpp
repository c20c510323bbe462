#pragma once

#include <doctest/doctest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lora/cpu/runtime/device.hpp"
#include "lora/tensor/stored.hpp"
#include "support/proof_memory.hpp"
#include "support/proof_queue.hpp"

namespace lora::proof {

/// What a proof device looks at beyond what is always an error, and how its thread dawdles.
struct Settings {
  bool alignment = false;     ///< operands that do not begin on 32 bytes
  bool tails = false;         ///< results whose last 32 bytes are partly somebody else's
  bool late_sources = false;  ///< host memory that changes, or is gone, before the copy from it has had its turn
  bool late_frees = false;    ///< memory that is freed while queued work uses it, though freeing is in order
  std::uint64_t seed = 1;
  std::chrono::microseconds longest_delay{200};
  std::optional<Tiling> tiling{};  ///< the CPU's where there is none, for the CPU's bits
  std::size_t host_memory = std::numeric_limits<std::size_t>::max();  ///< page-locked, that there is at all
};

/// What went on between host and device.
struct Counts {
  std::size_t launches = 0;
  std::size_t waits = 0;  ///< of the host: synchronize(), wait(event) and copies to the host
  std::size_t copies_in = 0, copies_out = 0, bytes_in = 0, bytes_out = 0;
  std::size_t bytes_beside = 0;  ///< of these, what was copied in Stream::copy
  std::size_t allocations = 0;   ///< of the device's and of page-locked memory, and how often the arena grew
  std::size_t early_frees = 0;   ///< while queued work used the memory
};

inline Counts operator-(Counts a, const Counts& b) {
  a.launches -= b.launches;
  a.waits -= b.waits;
  a.copies_in -= b.copies_in;
  a.copies_out -= b.copies_out;
  a.bytes_in -= b.bytes_in;
  a.bytes_out -= b.bytes_out;
  a.bytes_beside -= b.bytes_beside;
  a.allocations -= b.allocations;
  a.early_frees -= b.early_frees;
  return a;
}

struct Fault {
  std::string what;
  Place place;                       ///< of the call on the host
  const std::byte* about = nullptr;  ///< memory that is still to be described

  std::string text() const { return concat("[proof] ", what, "\nby\n", place.text()); }
};

/// The processors as a device that is as strict as real ones: kernels are the CPU's, but run later, on a thread for
/// each stream, in memory that host code can't touch. Breaches of the device contract are collected, with the place of
/// the call that made them; those that nobody takes fail the test when the device goes.
class Device : public DeviceState<Device> {
 public:
  static constexpr bool reads_host_memory = false;
  static constexpr bool splits_blocks = false;
  static constexpr bool decodes(DType) { return true; }
  using Sum = double;

  explicit Device(int threads = 1, const Settings& settings = {})
      : settings_(settings),
        memory_(arena_bytes),
        arena_(memory_.arena_begin(), arena_bytes, false, [this](std::size_t, std::size_t) { ++counts_.allocations; }),
        cpu_(threads),
        queues_{Queue(settings.seed, settings.longest_delay), Queue(settings.seed + 1, settings.longest_delay),
                Queue(settings.seed + 2, settings.longest_delay)} {}
  ~Device() {
    const std::vector<Fault> faults = finish();
    constexpr std::size_t most = 5;  // whose places are looked up
    for (std::size_t i = 0; i < std::min(most, faults.size()); ++i) FAIL_CHECK(faults[i].text());
    if (faults.size() > most) FAIL_CHECK("and " << faults.size() - most << " more");
  }

  void* allocate(std::size_t bytes) {
    ++counts_.allocations;
    if (allocation_failure_.is_now()) fail<DeviceError>("[proof] an allocation was to fail");
    void* const memory = memory_.allocate(bytes);
    allocated_.add(bytes);
    const std::lock_guard running(running_);
    memory_.forget(memory_.offset_of(memory), bytes);
    return memory;
  }
  void free(void* memory, std::size_t bytes) noexcept {
    const auto* const uses = memory_.uses_of(memory);
    const Memory::Uses last = uses == nullptr ? Memory::Uses() : *uses;
    const bool early = !queue(Stream::compute).is_done(last.last(index_of(Stream::compute)));
    counts_.early_frees += early ? 1 : 0;
    const std::string wrong = memory_.free(memory, bytes);
    if (!wrong.empty()) return note(wrong);
    allocated_.take(bytes);
    const auto described = [&] { return memory_.described(memory_.offset_of(memory)); };
    if (early && settings_.late_frees) note(concat("free while queued work uses it: ", described()));
    for (const Stream beside : {Stream::copy, Stream::links})
      if (last.last(index_of(beside)) > seen_[index_of(Stream::compute)][index_of(beside)])
        note(concat("free while the ", name_of(beside), " stream may use it, which nobody waited for: ", described()));
    submit(Stream::compute, {}, [this, offset = memory_.offset_of(memory), bytes] { memory_.drop(offset, bytes); });
  }

  void* allocate_host(std::size_t bytes) {
    ++counts_.allocations;
    if (page_locked_.now() + bytes > settings_.host_memory)
      fail<DeviceError>("[proof] out of page-locked memory: ", bytes, " bytes");
    page_locked_.add(bytes);
    auto& block = host_blocks_.emplace_back(HostBlock{std::vector<std::byte>(bytes, std::byte{0xFF}), {}});
    return block.bytes.data();
  }
  void free_host(void* memory, std::size_t bytes) noexcept {
    const auto found = host_block(memory);
    if (found == host_blocks_.end() || found->bytes.data() != memory || found->bytes.size() != bytes)
      return note("free_host of memory that is not allocate_host's");
    for (const Stream stream : streams)
      if (const auto last = found->used[index_of(stream)]; !queue(stream).is_done(last)) {
        note(concat("free_host while a copy in the ", name_of(stream), " stream may use it"));
        queue(stream).hold(false);
        queue(stream).wait_for(last);  // before it is gone
      }
    host_blocks_.erase(found);
    page_locked_.take(bytes);
  }
  MemoryInfo memory() const { return cpu_.memory(); }

  void copy_from_host(void* target, const void* source, std::size_t bytes, Stream stream = Stream::compute) {
    ++counts_.copies_in;
    counts_.bytes_in += bytes;
    if (stream == Stream::copy) counts_.bytes_beside += bytes;
    const Operand whole = bytes_of(target, bytes, Use::write);
    if (!accepts(stream, "copy_from_host", whole)) return;
    const auto* const begin = static_cast<const std::byte*>(source);
    auto taken = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
    const bool checks = settings_.late_sources;
    const auto number =
        submit(stream, {whole}, [this, whole, target, taken, source, checks, place = checks ? Place::here() : Place()] {
          if (checks && !holds_still(source, *taken))
            note_late({"copy_from_host: its source has changed, or is gone, before the copy was done", place, nullptr});
          if (!taken->empty()) std::memcpy(memory_.real(static_cast<std::byte*>(target)), taken->data(), taken->size());
          memory_.note_written(whole);
        });
    if (const auto block = host_block(source); block != host_blocks_.end()) block->used[index_of(stream)] = number;
  }
  void copy_to_host(void* target, const void* source, std::size_t bytes) {
    ++counts_.copies_out;
    counts_.bytes_out += bytes;
    const Operand whole = bytes_of(source, bytes, Use::read);
    if (!accepts(Stream::compute, "copy_to_host", whole)) return;
    std::vector<std::byte> staged(bytes);
    submit(Stream::compute, {whole}, [this, whole, &staged, place = Place::here()] {
      if (const auto which = memory_.unwritten(whole); !which.empty())
        note_late({concat("copy_to_host: of its source ", which), place, whole.data});
      if (!staged.empty()) std::memcpy(staged.data(), memory_.real(whole.data), staged.size());
    });
    synchronize();
    if (bytes > 0) std::memcpy(target, staged.data(), bytes);
  }
  void start_copy_to_host(void* target, const void* source, std::size_t bytes, Stream stream) {
    ++counts_.copies_out;
    counts_.bytes_out += bytes;
    if (stream == Stream::copy) counts_.bytes_beside += bytes;
    const Operand whole = bytes_of(source, bytes, Use::read);
    if (!accepts(stream, "start_copy_to_host", whole)) return;
    const auto block = host_block(target);
    auto* const begin = static_cast<std::byte*>(target);
    if (block == host_blocks_.end() || begin + bytes > block->bytes.data() + block->bytes.size())
      return note("start_copy_to_host: its target is not all allocate_host's");
    std::memset(target, 0xFF, bytes);  // NaN in every float type, for those who do not wait
    block->used[index_of(stream)] = submit(stream, {whole}, [this, whole, target, bytes, place = Place::here()] {
      if (const auto which = memory_.unwritten(whole); !which.empty())
        note_late({concat("start_copy_to_host: of its source ", which), place, whole.data});
      std::memcpy(target, memory_.real(whole.data), bytes);
    });
  }
  /// The bytes as they are at this point of a stream. Nothing counts as waited for, unlike behind a copy to the host.
  void look_at(Stream stream, void* target, const void* source, std::size_t bytes) {
    const Operand whole = bytes_of(source, bytes, Use::read);
    if (bytes == 0 || !accepts(stream, "look_at", whole)) return;
    queue(stream).wait_for(submit(stream, {whole}, [this, whole, target, bytes, place = Place::here()] {
      if (const auto which = memory_.unwritten(whole); !which.empty())
        note_late({concat("look_at: of its source ", which), place, whole.data});
      std::memcpy(target, memory_.real(whole.data), bytes);
    }));
  }
  void copy_on_device(void* target, const void* source, std::size_t bytes, Stream stream = Stream::compute) {
    const Operand to = bytes_of(target, bytes, Use::write), from = bytes_of(source, bytes, Use::read);
    if (!accepts(stream, "copy_on_device", to) || !accepts(stream, "copy_on_device", from)) return;
    submit(stream, {to, from}, [this, to, from, target, bytes, place = Place::here()] {
      if (const auto which = memory_.unwritten(from); !which.empty())
        note_late({concat("copy_on_device: of its source ", which), place, from.data});
      if (bytes > 0) std::memcpy(memory_.real(static_cast<std::byte*>(target)), memory_.real(from.data), bytes);
      memory_.note_written(to);
    });
  }
  void synchronize() {
    ++counts_.waits;
    for (Queue& queue : queues_) queue.hold(false);
    for (const Stream stream : streams) host_waits(stream, queue(stream).submitted());
    for (Queue& queue : queues_) queue.rethrow();
  }

  Event record(Stream stream) {
    note_arena();  // before what others wait for: they may be given what was released
    const auto made = std::make_shared<Record>();
    made->stream = stream;
    made->seen = seen_[index_of(stream)];
    made->number = submit(stream, {}, [made] { made->time = std::chrono::steady_clock::now(); });
    records_[++last_event_] = made;
    return {last_event_};
  }
  void wait(Stream stream, Event event) {
    if (stream_wait_failure_.is_now()) fail<DeviceError>("[proof] a stream's wait was to fail");
    const auto* const record = record_of(event, "wait");
    if (record == nullptr) return;
    Times& seen = seen_[index_of(stream)];
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = std::max(seen[i], record->seen[i]);
    seen[index_of(record->stream)] = std::max(seen[index_of(record->stream)], record->number);
    queue(stream).submit([this, from = record->stream, number = record->number] { queue(from).wait_for(number); });
  }
  void wait(Event event) {
    ++counts_.waits;
    if (wait_failure_.is_now()) fail<DeviceError>("[proof] a wait was to fail");
    const auto* const record = record_of(event, "wait");
    if (record == nullptr) return;
    for (Queue& queue : queues_) queue.hold(false);
    host_waits(record->stream, record->number);
    queue(record->stream).rethrow();
  }
  bool is_done(Event event) {
    const auto* const record = record_of(event, "is_done");
    return record == nullptr || queue(record->stream).is_done(record->number);
  }
  std::int64_t nanoseconds(Event from, Event to) {
    const auto *const a = record_of(from, "nanoseconds"), *const b = record_of(to, "nanoseconds");
    if (a == nullptr || b == nullptr) return 0;
    if (!is_done(from) || !is_done(to)) {
      note("nanoseconds: of an event that is not done yet");
      return 0;
    }
    return std::chrono::nanoseconds(b->time - a->time).count();
  }
  void release(Event event) noexcept {
    if (records_.erase(event.number) == 0) note("release of an event that is none, or was released before");
  }

  Arena& arena() { return arena_; }
  Tiling tiling() const { return settings_.tiling.value_or(cpu_.tiling()); }
  std::string describe() const { return "proof device, " + cpu_.describe(); }

  // For backends.

  /// Queues work on these operands. `more` gives, when the work's turn comes, those that only then are known: the rows
  /// of a `part`.
  void launch(std::string_view kernel, std::vector<Operand> operands, std::function<void(cpu::Device&)> work,
              std::function<std::vector<Operand>()> more = {}) {
    ++counts_.launches;
    bool accepted = true;
    for (const Operand& operand : operands) accepted = accepts(Stream::compute, kernel, operand) && accepted;
    if (!accepted) return;
    for (const Operand& operand : operands) {
      const std::size_t off = operand.empty() ? 0 : memory_.offset_of(operand.data) % block_bytes;
      if (settings_.alignment && off != 0)
        note(concat(kernel, ": ", operand.name, " begins ", off, " bytes behind a multiple of ", block_bytes));
    }
    const auto users = operands;
    submit(Stream::compute, users,
           [this, kernel, operands = std::move(operands), work = std::move(work), more = std::move(more),
            place = Place::here()]() mutable {
             if (more)
               for (Operand& operand : more()) operands.push_back(operand);
             std::erase_if(operands, [](const Operand& operand) { return operand.empty(); });
             const auto note_about = [&](const Operand& operand, std::string_view verb, const std::string& what) {
               if (!what.empty()) note_late({concat(kernel, verb, operand.name, ": ", what), place, operand.data});
             };
             for (const Operand& operand : operands) {
               if (operand.reads()) note_about(operand, " reads ", memory_.unwritten(operand));
               if (operand.writes() && settings_.tails)
                 note_about(operand, " writes ", memory_.foreign_tail(operand, operands));
             }
             const Memory::Surroundings around(memory_, operands);
             work(cpu_);
             if (const auto [what, beside] = around.difference(); !what.empty())
               note_late({concat(kernel, " ", what), place, beside});
             for (const Operand& operand : operands)
               if (operand.writes()) memory_.note_written(operand);
           });
  }

  /// The view as the kernels of the CPU take it, on the worker's thread only.
  template <class T>
  View<cpu::Device, T> inner(const View<Device, T>& view) const {
    return view.empty() ? View<cpu::Device, T>()
                        : View<cpu::Device, T>(memory_.real(view.data()), view.rows(), view.cols(), view.stride());
  }
  StoredView<cpu::Device> inner(const StoredView<Device>& stored) const {
    return {memory_.real(stored.data()), stored.dtype(), stored.rows(), stored.cols()};
  }

  // For tests.

  const Counts& counts() const { return counts_; }
  /// What tensors have of the device's memory, but for the arena and what is page-locked.
  AllocatedBytes& allocated() { return allocated_; }
  const AllocatedBytes& page_locked() const { return page_locked_; }
  /// Nothing more begins, in one stream or in all, until the host waits.
  void hold() {
    for (Queue& queue : queues_) queue.hold(true);
  }
  void hold(Stream stream) { queue(stream).hold(true); }
  /// After so many waits of the host for events, the next one throws DeviceError.
  void fail_wait_after(std::size_t waits) { wait_failure_ = {waits, 1}; }
  /// The same of waits of streams, and of so many `allocate` as come next.
  void fail_stream_wait_after(std::size_t waits) { stream_wait_failure_ = {waits, 1}; }
  void fail_allocations_after(std::size_t allocations, std::size_t failures = 1) {
    allocation_failure_ = {allocations, failures};
  }

  /// What was wrong since the last call.
  std::vector<Fault> take_faults() {
    try {
      synchronize();
    } catch (const std::exception& error) {
      note(concat("nobody waited for a kernel that failed: ", std::string_view(error.what())));
    }
    --counts_.waits;
    for (Fault& fault : faults_)
      if (const auto* const about = std::exchange(fault.about, nullptr); about != nullptr)
        fault.what += ": " + memory_.described(memory_.offset_of(about));
    return std::exchange(faults_, {});
  }
  /// The same at the end, when all memory must be free.
  std::vector<Fault> finish() {
    release_states();
    auto faults = take_faults();
    if (std::exchange(finished_, true)) return faults;
    if (!host_blocks_.empty())
      faults.push_back({concat("a leak: ", host_blocks_.size(), " blocks of page-locked memory"), {}, nullptr});
    if (!records_.empty()) faults.push_back({concat("a leak: ", records_.size(), " events"), {}, nullptr});
    memory_.for_each_leak([&](const std::string& what, const Place& made) { faults.push_back({what, made, nullptr}); });
    return faults;
  }

 private:
  static constexpr std::size_t arena_bytes = std::size_t{1} << 30;

  static Operand bytes_of(const void* memory, std::size_t bytes, Use use) {
    return {use == Use::read ? "source" : "target", use, static_cast<const std::byte*>(memory), 1, bytes, bytes};
  }

  static constexpr Stream streams[] = {Stream::compute, Stream::copy, Stream::links};
  static constexpr std::size_t index_of(Stream stream) { return static_cast<std::size_t>(stream); }
  static constexpr std::string_view name_of(Stream stream) {
    constexpr std::string_view names[] = {"compute", "copy", "links"};
    return names[index_of(stream)];
  }
  Queue& queue(Stream stream) { return queues_[index_of(stream)]; }

  /// Calls that are to fail: so many after those that come next.
  struct Failure {
    std::size_t before = 0, count = 0;

    bool is_now() {
      if (count == 0 || before-- > 0) return false;
      before = 0;
      --count;
      return true;
    }
  };
  /// What an event stands for.
  struct Record {
    Stream stream = Stream::compute;
    std::uint64_t number = 0;
    Times seen{};  ///< what its stream had waited for
    std::chrono::steady_clock::time_point time{};
  };
  const Record* record_of(Event event, std::string_view call) {
    const auto found = records_.find(event.number);
    if (found != records_.end()) return found->second.get();
    note(concat(call, ": of an event that is none, or was released"));
    return nullptr;
  }

  struct HostBlock {
    std::vector<std::byte> bytes;
    Times used{};  ///< by the last copies from it and to it
  };
  std::list<HostBlock>::iterator host_block(const void* memory) {
    const auto* const at = static_cast<const std::byte*>(memory);
    return std::find_if(host_blocks_.begin(), host_blocks_.end(), [&](const HostBlock& block) {
      return at >= block.bytes.data() && at < block.bytes.data() + block.bytes.size();
    });
  }

  void host_waits(Stream stream, std::uint64_t number) {
    queue(stream).wait_for(number);
    for (Times& seen : seen_) seen[index_of(stream)] = std::max(seen[index_of(stream)], number);
  }

  bool accepts(Stream stream, std::string_view kernel, const Operand& operand) {
    note_arena();
    const std::string refusal = memory_.refusal(operand);
    if (!refusal.empty()) {
      note(concat(kernel, ": ", operand.name, " ", refusal));
      return false;
    }
    if (const auto* const uses = operand.empty() ? nullptr : memory_.uses_of(operand.data); uses != nullptr)
      for (const Stream other : streams) {
        const std::size_t i = index_of(other);
        const std::uint64_t last = operand.reads() ? uses->write[i] : uses->last(i);
        if (other != stream && last > seen_[index_of(stream)][i])
          note(concat(kernel, ": ", operand.name, " is used in the ", name_of(other), " stream, which the ",
                      name_of(stream),
                      " stream has not waited for: ", memory_.described(memory_.offset_of(operand.data))));
      }
    return true;
  }

  // What the arena has released since the last launch is unwritten again, in the queue's order.
  void note_arena() {
    for (const auto& [begin, end] : memory_.note_arena(arena_.free_range(), arena_.take_widest_free_range()))
      submit(Stream::compute, {}, [this, begin = begin, bytes = end - begin] { memory_.forget(begin, bytes); });
  }

  std::uint64_t submit(Stream stream, const std::vector<Operand>& operands, std::function<void()> task) {
    const std::uint64_t number = queue(stream).submit([this, task = std::move(task)] {
      const std::lock_guard running(running_);  // of two streams one at a time, in any order
      task();
    });
    for (const Operand& operand : operands) {
      auto* const uses = operand.empty() ? nullptr : memory_.uses_of(operand.data);
      if (uses != nullptr) (operand.writes() ? uses->write : uses->read)[index_of(stream)] = number;
    }
    return number;
  }

  /// Whether memory of the host, which may be gone, still holds these bytes.
  static bool holds_still(const void* source, const std::vector<std::byte>& bytes);

  void note(std::string what) { note_late({std::move(what), Place::here(), nullptr}); }
  void note_late(Fault fault) {
    const std::lock_guard lock(faults_mutex_);
    faults_.push_back(std::move(fault));
  }

  Settings settings_;
  Counts counts_;
  std::mutex faults_mutex_;
  std::vector<Fault> faults_;
  bool finished_ = false;
  Failure wait_failure_, stream_wait_failure_, allocation_failure_;
  Memory memory_;
  AllocatedBytes allocated_, page_locked_;
  Arena arena_;
  cpu::Device cpu_;
  std::array<Times, 3> seen_{};  // of each stream: up to where it has waited for the others
  std::map<std::int64_t, std::shared_ptr<Record>> records_;
  std::int64_t last_event_ = 0;
  std::list<HostBlock> host_blocks_;
  std::mutex running_;
  std::array<Queue, 3> queues_;  // the last: their threads use the others
};

inline bool Device::holds_still(const void* source, const std::vector<std::byte>& bytes) {
  // Writing to a file reads the source without dying of it.
  const int file = memfd_create("proof", 0);
  if (file < 0) fail<DeviceError>("[proof] no file in memory");
  std::vector<std::byte> now(bytes.size());
  const auto size = static_cast<ssize_t>(bytes.size());
  // Past what sanitizers listen to: it is the point that the source may be freed.
  const bool there =
      syscall(SYS_pwrite64, file, source, bytes.size(), 0) == size && pread(file, now.data(), now.size(), 0) == size;
  close(file);
  return there && now == bytes;
}

static_assert(AnyDevice<Device>);

}  // namespace lora::proof
