#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core.hpp"

namespace stand_in {

namespace {

std::string number(std::size_t value) { return std::to_string(value); }

std::size_t rounded_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

/// A file that exists in memory alone, of which nothing is there until it is written.
int memory_file(std::size_t size) {
  const int file = ::memfd_create("stand_in", MFD_CLOEXEC);
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(size)) != 0) {
    ::close(file);
    return -1;
  }
  return file;
}

unsigned char* map_file(int file, std::size_t size) {
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return address != MAP_FAILED ? static_cast<unsigned char*>(address) : nullptr;
}

std::uint64_t sum_of(const void* data, std::size_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  std::uint64_t sum = size;
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, 8);
    sum = (sum ^ word) * 0x100000001B3u;
  }
  for (; i < size; ++i) sum = (sum ^ from[i]) * 0x100000001B3u;
  return sum;
}

}  // namespace

Address reserve_memory(std::size_t size) {
  void* address = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address != MAP_FAILED ? reinterpret_cast<Address>(address) : 0;
}

void unmap_memory(Address base, std::size_t size) { ::munmap(reinterpret_cast<void*>(base), size); }

Device& Core::prepare_device(int id) {
  Device& one = devices_[static_cast<std::size_t>(id)];
  if (one.arena != nullptr) return one;
  one.arena = std::make_unique<Arena>();
  one.arena->size = rounded_up(static_cast<std::size_t>(settings.memory_bytes), kPage);
  one.arena->device = id;
  one.arena->base = reserve_memory(one.arena->size);
  if (!dry_) {
    // Both files start without a page, so that together they take no more memory than the device has.
    const int file = memory_file(one.arena->size);
    one.arena->inside = map_file(file, one.arena->size);
    one.arena_file = file;
    one.physical_file = memory_file(one.arena->size);
    one.physical_inside = map_file(one.physical_file, one.arena->size);
  }
  one.gaps[0] = one.arena->size;
  for (std::size_t at = one.arena->size; at > 0; at -= kPage) one.free_pages.push_back(at - kPage);
  forbid(one.arena->base, one.arena->base + one.arena->size);
  return one;
}

void Core::drop_device(Device& one) {
  if (one.arena == nullptr) return;
  allow(one.arena->base);
  unmap_memory(one.arena->base, one.arena->size);
  if (one.arena->inside != nullptr) unmap_memory(reinterpret_cast<Address>(one.arena->inside), one.arena->size);
  if (one.physical_inside != nullptr) unmap_memory(reinterpret_cast<Address>(one.physical_inside), one.arena->size);
  if (one.arena_file >= 0) ::close(one.arena_file);
  if (one.physical_file >= 0) ::close(one.physical_file);
  one.arena = nullptr;
}

void Core::release_device(int id, const char* caller) {
  for (const Context* context : contexts_)
    if (context->device == id) return;  // there are others
  Device& one = devices_[static_cast<std::size_t>(id)];
  std::size_t left = 0, bytes = 0;
  for (auto at = live_.begin(); at != live_.end();) {
    if (at->second.device != id || at->second.mapped) {
      ++at;
      continue;
    }
    ++left;
    bytes += at->second.size;
    counts.allocated_bytes -= at->second.size;
    at = live_.erase(at);
  }
  if (left > 0 && caller != nullptr)
    note(std::string(caller) + ": device memory is left: " + number(left) + " pieces, " + number(bytes) + " bytes");
  for (const auto& [offset, size] : one.gaps) one.used += size;
  one.used -= std::min(one.used, one.arena->size);
  one.gaps.clear();
  one.gaps[0] = one.arena->size;
}

const Arena* Core::arena_of(Address address) const {
  for (const Device& one : devices_)
    if (one.arena != nullptr && address >= one.arena->base && address < one.arena->base + one.arena->size)
      return one.arena.get();
  for (const auto& one : reservations_)
    if (address >= one->base && address < one->base + one->size) return one.get();
  return nullptr;
}

int Core::owner_of(Address address) const {
  const Arena* arena = arena_of(address);
  return arena != nullptr ? arena->device : -1;
}

int Core::owner(const void* address) {
  const Lock lock(mutex);
  return owner_of(reinterpret_cast<Address>(address));
}

/// Where an address lies that is not in live memory.
std::string Core::place(Address address) {
  const Arena* arena = arena_of(address);
  if (arena == nullptr) return "no device memory";
  for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed)
    if (address >= freed->first && address < freed->second) return "memory that was freed";
  if (arena->reservation) return "an address with no memory mapped to it";
  return "memory that was not allocated";
}

unsigned char* Core::inside(Address address, std::size_t bytes, int device, std::string* why) {
  auto found = live_.upper_bound(address);
  if (found == live_.begin() || address >= std::prev(found)->second.base + std::prev(found)->second.size) {
    if (why != nullptr) *why = place(address);
    return nullptr;
  }
  const Allocation& one = std::prev(found)->second;
  if (device >= 0 && one.device >= 0 && one.device != device) {
    if (why != nullptr) *why = "memory of device " + std::to_string(one.device);
    return nullptr;
  }
  Address end = one.base + one.size;
  // Pieces that are mapped one behind the other are one.
  while (one.mapped && end < address + bytes && found != live_.end() && found->second.mapped &&
         found->second.base == end && found->second.arena == one.arena) {
    end += found->second.size;
    ++found;
  }
  if (address + bytes > end) {
    if (why != nullptr) {
      *why = "larger than its memory (" + number(bytes) + " bytes, " + number(end - address) + " there)";
      if (one.mapped) *why = "not all mapped";
    }
    return nullptr;
  }
  if (one.device < 0) return reinterpret_cast<unsigned char*>(address);
  return one.arena->inside != nullptr ? one.arena->inside + (address - one.arena->base)
                                      : reinterpret_cast<unsigned char*>(address);
}

unsigned char* Core::reach(const void* address, std::size_t bytes, bool host) {
  const Lock lock(mutex);
  const auto from = reinterpret_cast<Address>(address);
  if (unsigned char* memory = inside(from, bytes, -1, nullptr); memory != nullptr) return memory;
  if (!host || arena_of(from) != nullptr) return nullptr;
  return const_cast<unsigned char*>(static_cast<const unsigned char*>(address));
}

// Allocation

int Core::allocate(const char* caller, void** pointer, std::size_t size, std::size_t room) {
  const Lock lock(mutex);
  const std::string name = caller;
  const Context* context = thread_context();
  if (const int code = usable(caller, context); code != 0) return code;
  if (pointer == nullptr || size == 0) return failure(ACL_ERROR_RT_PARAM_INVALID, name + ": null or no bytes");
  Device& one = devices_[static_cast<std::size_t>(context->device)];
  if (strikes(settings.fail_allocation, settings.fail_allocations_from))
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, name + ": no memory (as was asked for)");
  // 64 bytes behind a multiple of 512: more is promised to nobody.
  constexpr std::size_t kUnit = 512, kShift = 64;
  const std::size_t needed = rounded_up(room + kShift, kUnit);
  const auto gap = std::find_if(one.gaps.begin(), one.gaps.end(), [&](const auto& g) { return g.second >= needed; });
  if (room < size || gap == one.gaps.end() || one.used + one.reserved + needed > one.arena->size)
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION,
                   name + ": no " + number(size) + " bytes left on device " + std::to_string(context->device));
  const std::size_t offset = gap->first, left = gap->second - needed;
  one.gaps.erase(gap);
  if (left > 0) one.gaps[offset + needed] = left;
  one.used += needed;
  Allocation made;
  made.base = one.arena->base + offset + kShift;
  made.size = size;
  made.room = room;
  made.gap = offset;
  made.taken = needed;
  made.device = context->device;
  made.arena = one.arena.get();
  live_[made.base] = made;
  std::erase_if(freed_, [&](const auto& range) { return range.first < made.base + size && made.base < range.second; });
  ++counts.device_allocations;
  counts.allocated_bytes += size;
  counts.peak_bytes = std::max(counts.peak_bytes, counts.allocated_bytes);
  if (one.arena->inside != nullptr) std::memset(one.arena->inside + offset, 0xFF, needed);
  *pointer = reinterpret_cast<void*>(made.base);
  return 0;
}

int Core::release(void* pointer) {
  const Lock lock(mutex);
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, "aclrtFree: aclInit was not called");
  if (pointer == nullptr) {
    note("aclrtFree: null");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtFree: null");
  }
  const auto found = live_.find(reinterpret_cast<Address>(pointer));
  if (found == live_.end() || found->second.device < 0 || found->second.mapped) {
    note("aclrtFree: " + place(reinterpret_cast<Address>(pointer)));
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtFree: " + place(reinterpret_cast<Address>(pointer)));
  }
  const Allocation gone = found->second;
  if (const std::string user = late_use(gone.base, gone.base + gone.size); !user.empty())
    note("aclrtFree: memory that " + user + " uses, which the host does not know to be over");
  live_.erase(found);
  forget(gone.base, gone.base + gone.size);
  freed_.emplace_back(gone.base, gone.base + gone.size);
  if (freed_.size() > 256) freed_.pop_front();
  Device& one = devices_[static_cast<std::size_t>(gone.device)];
  one.used -= gone.taken;
  counts.allocated_bytes -= gone.size;
  auto gap = one.gaps.emplace(gone.gap, gone.taken).first;
  if (const auto next = std::next(gap); next != one.gaps.end() && gap->first + gap->second == next->first) {
    gap->second += next->second;
    one.gaps.erase(next);
  }
  if (gap != one.gaps.begin()) {
    if (const auto last = std::prev(gap); last->first + last->second == gap->first) {
      last->second += gap->second;
      one.gaps.erase(gap);
    }
  }
  if (one.arena->inside != nullptr) {
    // What is large goes back to the machine.
    const std::size_t from = rounded_up(gone.gap, 4096), to = (gone.gap + gone.taken) / 4096 * 4096;
    if (gone.taken <= 2 * kPage || to <= from ||
        ::fallocate(one.arena_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                    static_cast<off_t>(to - from)) != 0)
      std::memset(one.arena->inside + gone.gap, 0xFF, gone.taken);
  }
  const Context* context = thread_context();
  return context != nullptr && contexts_.count(thread_context()) != 0 ? usable("aclrtFree", thread_context()) : 0;
}

namespace {

/// Addresses behind which the same few pages lie again and again, so that whoever fills them takes no memory.
void* same_pages_again(std::size_t bytes) {
  constexpr std::size_t unit = std::size_t{32} << 20;
  static const int file = [] {
    const int made = ::memfd_create("stand-in", 0);
    return made >= 0 && ::ftruncate(made, static_cast<off_t>(unit)) == 0 ? made : -1;
  }();
  if (file < 0) return MAP_FAILED;
  void* const memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (std::size_t at = 0; memory != MAP_FAILED && at < bytes; at += unit) {
    void* const place = static_cast<char*>(memory) + at;
    if (::mmap(place, std::min(unit, bytes - at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
        MAP_FAILED)
      return MAP_FAILED;
  }
  return memory;
}

}  // namespace

int Core::allocate_host(void** pointer, std::size_t size) {
  const Lock lock(mutex);
  if (const int code = usable("aclrtMallocHost", thread_context()); code != 0) return code;
  if (pointer == nullptr || size == 0) return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtMallocHost: null or no bytes");
  if (strikes(settings.fail_host_allocation, settings.fail_host_allocations_from))
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost: no memory (as was asked for)");
  const std::size_t pages = rounded_up(size, 4096);
  void* memory =
      dry_ ? same_pages_again(pages)
           : ::mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost: no memory");
  if (!dry_) std::memset(memory, 0xFF, size);
  Allocation made;
  made.base = reinterpret_cast<Address>(memory);
  made.size = size;
  made.room = pages;
  made.device = -1;
  live_[made.base] = made;
  ++counts.host_allocations;
  *pointer = memory;
  return 0;
}

int Core::release_host(void* pointer) {
  const Lock lock(mutex);
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, "aclrtFreeHost: aclInit was not called");
  const auto found = live_.find(reinterpret_cast<Address>(pointer));
  if (pointer == nullptr || found == live_.end() || found->second.device >= 0) {
    note("aclrtFreeHost: no memory of aclrtMallocHost");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtFreeHost: no memory of aclrtMallocHost");
  }
  const Allocation gone = found->second;
  if (const std::string user = late_use(gone.base, gone.base + gone.size); !user.empty())
    note("aclrtFreeHost: memory that " + user + " uses, which the host does not know to be over");
  live_.erase(found);
  forget(gone.base, gone.base + gone.size);
  grave_.emplace_back(pointer, gone.room);
  bool idle = true;
  for (const auto& [stream, owned] : streams_) idle = idle && (dry_ || stream->finished >= stream->submitted);
  if (idle) {
    for (const auto& [memory, size] : grave_) ::munmap(memory, size);
    grave_.clear();
  }
  return 0;
}

int Core::memory(std::size_t* free, std::size_t* total) {
  const Lock lock(mutex);
  const Context* context = thread_context();
  if (const int code = usable("aclrtGetMemInfo", thread_context()); code != 0) return code;
  const Device& one = devices_[static_cast<std::size_t>(context->device)];
  *total = one.arena->size;
  *free = one.arena->size - std::min(one.arena->size, one.used + one.reserved);
  return 0;
}

bool Core::reserve(int device, std::int64_t bytes) {
  const Lock lock(mutex);
  if (device < 0 || device >= static_cast<int>(devices_.size())) return false;
  Device& one = devices_[static_cast<std::size_t>(device)];
  if (bytes < 0) {
    one.reserved -= std::min(one.reserved, static_cast<std::size_t>(-bytes));
    return true;
  }
  if (one.arena == nullptr || one.used + one.reserved + static_cast<std::size_t>(bytes) > one.arena->size) return false;
  one.reserved += static_cast<std::size_t>(bytes);
  return true;
}

// Virtual memory management

int Core::reserve_address(void** address, std::size_t size, bool huge) {
  const Lock lock(mutex);
  const Context* context = thread_context();
  if (const int code = usable("aclrtReserveMemAddress", thread_context()); code != 0) return code;
  auto arena = std::make_unique<Arena>();
  arena->size = size;
  arena->device = context->device;
  arena->reservation = true;
  arena->huge = huge;
  // Start at a multiple of a page, as the vendor's do.
  const Address base = reserve_memory(size + kPage);
  if (base == 0) return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtReserveMemAddress: no addresses left");
  arena->base = rounded_up(base, kPage);
  if (arena->base > base) unmap_memory(base, arena->base - base);
  if (base + kPage > arena->base) unmap_memory(arena->base + size, base + kPage - arena->base);
  if (!dry_) arena->inside = reinterpret_cast<unsigned char*>(reserve_memory(size));
  forbid(arena->base, arena->base + size);
  *address = reinterpret_cast<void*>(arena->base);
  reservations_.push_back(std::move(arena));
  return 0;
}

int Core::release_address(void* address) {
  const Lock lock(mutex);
  const auto base = reinterpret_cast<Address>(address);
  const auto found =
      std::find_if(reservations_.begin(), reservations_.end(), [base](const auto& one) { return one->base == base; });
  if (found == reservations_.end()) {
    note("aclrtReleaseMemAddress: no address of aclrtReserveMemAddress");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtReleaseMemAddress: no address of aclrtReserveMemAddress");
  }
  for (const auto& [from, one] : live_) {
    if (one.arena != found->get()) continue;
    note("aclrtReleaseMemAddress: memory is still mapped");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtReleaseMemAddress: memory is still mapped");
  }
  allow(base);
  unmap_memory(base, (*found)->size);
  // A task may still run on the inner side, which therefore stays as it is.
  reservations_.erase(found);
  return 0;
}

int Core::allocate_physical(aclrtDrvMemHandle* handle, std::size_t size, int id, bool huge) {
  const Lock lock(mutex);
  if (const int code = usable("aclrtMallocPhysical", thread_context()); code != 0) return code;
  if (id < 0 || id >= static_cast<int>(devices_.size()) || devices_[static_cast<std::size_t>(id)].arena == nullptr)
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtMallocPhysical: no such device is set");
  Device& one = devices_[static_cast<std::size_t>(id)];
  if (strikes(settings.fail_allocation, settings.fail_allocations_from))
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocPhysical: no memory (as was asked for)");
  if (one.used + one.reserved + size > one.arena->size || one.free_pages.size() * kPage < size)
    return failure(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocPhysical: no " + number(size) + " bytes left");
  auto made = std::make_unique<Physical>();
  made->size = size;
  made->device = id;
  made->huge = huge;
  for (std::size_t at = 0; at < size; at += kPage) {
    made->pages.push_back(one.free_pages.back());
    one.free_pages.pop_back();
    if (one.physical_inside != nullptr) std::memset(one.physical_inside + made->pages.back(), 0xFF, kPage);
  }
  one.used += size;
  ++counts.device_allocations;
  counts.allocated_bytes += size;
  counts.peak_bytes = std::max(counts.peak_bytes, counts.allocated_bytes);
  *handle = made.get();
  physical_.emplace(made.get(), std::move(made));
  return 0;
}

int Core::release_physical(aclrtDrvMemHandle handle) {
  const Lock lock(mutex);
  const auto found = physical_.find(handle);
  if (found == physical_.end()) {
    note("aclrtFreePhysical: no such memory");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtFreePhysical: no such memory");
  }
  if (found->second->mapped != 0) {
    note("aclrtFreePhysical: the memory is still mapped");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtFreePhysical: the memory is still mapped");
  }
  Device& one = devices_[static_cast<std::size_t>(found->second->device)];
  one.used -= found->second->size;
  counts.allocated_bytes -= found->second->size;
  for (const std::size_t page : found->second->pages) {
    one.free_pages.push_back(page);
    if (one.physical_file >= 0)
      ::fallocate(one.physical_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(page),
                  static_cast<off_t>(kPage));
  }
  physical_.erase(found);
  return 0;
}

int Core::map(void* address, std::size_t size, aclrtDrvMemHandle handle) {
  const Lock lock(mutex);
  if (const int code = usable("aclrtMapMem", thread_context()); code != 0) return code;
  const auto base = reinterpret_cast<Address>(address);
  const Arena* arena = arena_of(base);
  const auto found = physical_.find(handle);
  const auto wrong = [&](const std::string& text) {
    note("aclrtMapMem: " + text);
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: " + text);
  };
  if (found == physical_.end()) return wrong("no such memory");
  Physical& memory = *found->second;
  if (arena == nullptr || !arena->reservation || base + size > arena->base + arena->size)
    return wrong("the addresses are not reserved");
  if (base % kPage != 0 || size != memory.size) return wrong("not all of the memory, or not at the start of a page");
  if (memory.mapped != 0) return wrong("the memory is mapped already");
  if (memory.huge != arena->huge) return wrong("the memory's pages are not of the kind that the addresses are for");
  if (memory.device != arena->device) return wrong("memory of another device");
  const auto next = live_.lower_bound(base);
  if ((next != live_.end() && next->second.base < base + size) ||
      (next != live_.begin() && std::prev(next)->second.base + std::prev(next)->second.size > base))
    return wrong("memory is mapped there already");
  if (arena->inside != nullptr) {
    unsigned char* to = arena->inside + (base - arena->base);
    for (const std::size_t page : memory.pages) {
      ::mmap(to, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             devices_[static_cast<std::size_t>(memory.device)].physical_file, static_cast<off_t>(page));
      to += kPage;
    }
  }
  memory.mapped = base;
  Allocation made;
  made.base = base;
  made.size = made.room = size;
  made.device = memory.device;
  made.mapped = true;
  made.arena = arena;
  live_[base] = made;
  std::erase_if(freed_, [&](const auto& range) { return range.first < base + size && base < range.second; });
  return 0;
}

int Core::unmap(void* address) {
  const Lock lock(mutex);
  const auto base = reinterpret_cast<Address>(address);
  const auto found = live_.find(base);
  if (found == live_.end() || !found->second.mapped) {
    note("aclrtUnmapMem: nothing is mapped there");
    return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtUnmapMem: nothing is mapped there");
  }
  const std::size_t size = found->second.size;
  if (const std::string user = late_use(base, base + size); !user.empty())
    note("aclrtUnmapMem: memory that " + user + " uses, which the host does not know to be over");
  live_.erase(found);
  forget(base, base + size);
  freed_.emplace_back(base, base + size);
  for (auto& [handle, memory] : physical_)
    if (memory->mapped == base) memory->mapped = 0;
  return 0;
}

// Copies

int Core::copy(const char* caller, void* to, std::size_t most, const void* from, std::size_t count,
               aclrtMemcpyKind kind, bool async, aclrtStream handle) {
  Lock lock(mutex);
  const std::string name = caller;
  if (const int code = usable(caller, thread_context()); code != 0) return code;
  const int device = thread_context()->device;
  if (to == nullptr || from == nullptr) return failure(ACL_ERROR_RT_PARAM_INVALID, name + ": null");
  if (count == 0 || count > most)
    return failure(ACL_ERROR_RT_PARAM_INVALID,
                   name + ": " + number(count) + " bytes to where " + number(most) + " fit");
  const auto target = reinterpret_cast<Address>(to), source = reinterpret_cast<Address>(from);
  const bool to_device = owner_of(target) >= 0, from_device = owner_of(source) >= 0;
  const auto pinned = [&](Address address) {
    const auto next = live_.upper_bound(address);
    return next != live_.begin() && std::prev(next)->second.device < 0 &&
           address < std::prev(next)->second.base + std::prev(next)->second.size;
  };
  const aclrtMemcpyKind actual = to_device ? (from_device ? ACL_MEMCPY_DEVICE_TO_DEVICE : ACL_MEMCPY_HOST_TO_DEVICE)
                                           : (from_device ? ACL_MEMCPY_DEVICE_TO_HOST : ACL_MEMCPY_HOST_TO_HOST);
  const bool fits = kind == actual || kind == ACL_MEMCPY_DEFAULT ||
                    (kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE && actual == ACL_MEMCPY_HOST_TO_DEVICE) ||
                    ((kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE || kind == ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) &&
                     actual == ACL_MEMCPY_DEVICE_TO_DEVICE);
  if (!fits) {
    note(name + ": the kind " + std::to_string(kind) + " is not that of the addresses");
    return failure(ACL_ERROR_RT_PARAM_INVALID, name + ": the kind is not that of the addresses");
  }
  if (async && actual == ACL_MEMCPY_HOST_TO_HOST)
    return failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, name + ": host to host");
  if (async && actual == ACL_MEMCPY_DEVICE_TO_DEVICE && (target % 64 != 0 || source % 64 != 0)) {
    note(name + ": addresses on the device that are not aligned to 64 bytes");
    return failure(ACL_ERROR_RT_ADDR_UNALIGNED, name + ": addresses that are not aligned to 64 bytes");
  }
  Stream* stream = nullptr;
  if (async) {
    int code = 0;
    stream = find_stream(caller, handle, &code);
    if (stream == nullptr) return code;
  }
  // Both ends must be where memory is, now and when the copy runs.
  unsigned char* ends[2] = {static_cast<unsigned char*>(to),
                            const_cast<unsigned char*>(static_cast<const unsigned char*>(from))};
  const Address addresses[2] = {target, source};
  bool host_pinned = false;
  for (int i = 0; i < 2; ++i) {
    const bool on_device = i == 0 ? to_device : from_device;
    if (!on_device && !pinned(addresses[i])) continue;
    if (!on_device) host_pinned = true;
    std::string why;
    ends[i] = inside(addresses[i], count, actual == ACL_MEMCPY_DEVICE_TO_DEVICE ? -1 : device, &why);
    if (ends[i] != nullptr) continue;
    note(name + ": the " + (i == 0 ? "target" : "source") + " is " + why);
    return failure(ACL_ERROR_RT_PARAM_INVALID, name + ": the " + (i == 0 ? "target" : "source") + " is " + why);
  }
  if (actual == ACL_MEMCPY_HOST_TO_DEVICE) {
    ++counts.copies_in;
    counts.bytes_in += count;
  } else if (actual == ACL_MEMCPY_DEVICE_TO_HOST) {
    ++counts.copies_out;
    counts.bytes_out += count;
  } else if (actual == ACL_MEMCPY_DEVICE_TO_DEVICE) {
    ++counts.copies_on_device;
    counts.bytes_on_device += count;
  }
  if (!async || (!host_pinned && actual == ACL_MEMCPY_DEVICE_TO_HOST)) ++counts.waits;
  if (dry_) {
    lock.unlock();
    if (actual == ACL_MEMCPY_DEVICE_TO_HOST) std::memset(to, 0, count);
    if (actual == ACL_MEMCPY_HOST_TO_HOST) std::memcpy(to, from, count);
    return 0;
  }
  Touch reads{from, count, false, "the source"}, writes{to, count, true, "the target"};
  if (!async) {
    if (to_device || host_pinned) order(nullptr, host_, name, writes);
    if (from_device || host_pinned) order(nullptr, host_, name, reads);
    lock.unlock();
    std::memmove(ends[0], ends[1], count);
    return 0;
  }
  Queued item;
  item.task.name = name;
  const bool waits = !host_pinned && actual != ACL_MEMCPY_DEVICE_TO_DEVICE;
  if (waits) note(name + ": memory of the host that is not page-locked, of which the vendor promises nothing");
  std::uint64_t sum = 0;
  bool watched = false;
  if (host_pinned && actual == ACL_MEMCPY_HOST_TO_DEVICE && settings.check_pinned != 0 &&
      !pending(source, source + count, true)) {
    watched = true;
    sum = sum_of(from, count);
  }
  if (host_pinned && actual == ACL_MEMCPY_DEVICE_TO_HOST && !pending(target, target + count, false))
    std::memset(to, 0xFF, count);  // whoever reads too early is to see it
  item.task.touches = {reads, writes};
  if (waits) item.task.touches.erase(item.task.touches.begin() + (to_device ? 0 : 1));  // the host is here itself
  item.task.run = [this, name, to, from, count, device, to_device, from_device, host_pinned, watched, sum] {
    unsigned char* into = nullptr;
    unsigned char* out_of = nullptr;
    std::string why;
    {
      const Lock inner(mutex);
      const int of = to_device && from_device ? -1 : device;
      into = to_device || host_pinned ? inside(reinterpret_cast<Address>(to), count, of, &why)
                                      : static_cast<unsigned char*>(to);
      out_of = from_device || host_pinned ? inside(reinterpret_cast<Address>(from), count, of, &why)
                                          : const_cast<unsigned char*>(static_cast<const unsigned char*>(from));
      // After a loss the host may free what waiting copies use.
      if ((into == nullptr || out_of == nullptr) && !devices_[static_cast<std::size_t>(device)].lost)
        note(name + ": when the copy ran, the " + (into == nullptr ? "target" : "source") + " was " + why);
    }
    if (into == nullptr || out_of == nullptr) return static_cast<int>(ACL_ERROR_RT_DEVICE_MEM_ERROR);
    if (watched && sum_of(out_of, count) != sum) fault(name + ": the host changed the source before the copy ran");
    std::memmove(into, out_of, count);
    return 0;
  };
  const std::uint64_t task = push(*stream, std::move(item));
  if (!waits) return 0;
  Clock over = stream->clock;
  over[stream->number] = task;
  wait_for(*stream, task, -1, lock);
  if (const int code = surface(caller, *stream); code != 0) return code;
  learn(over);
  return 0;
}

int Core::fill(const char* caller, void* to, std::size_t most, int value, std::size_t count, bool async,
               aclrtStream handle) {
  Lock lock(mutex);
  const std::string name = caller;
  if (const int code = usable(caller, thread_context()); code != 0) return code;
  if (to == nullptr || count == 0 || count > most)
    return failure(ACL_ERROR_RT_PARAM_INVALID, name + ": null, no bytes or more than fit");
  Stream* stream = nullptr;
  if (async) {
    int code = 0;
    stream = find_stream(caller, handle, &code);
    if (stream == nullptr) return code;
  }
  std::string why;
  unsigned char* memory = inside(reinterpret_cast<Address>(to), count, thread_context()->device, &why);
  if (memory == nullptr) {
    note(name + ": the target is " + why);
    return failure(ACL_ERROR_RT_PARAM_INVALID, name + ": the target is " + why);
  }
  ++counts.memsets;
  if (dry_) return 0;
  const Touch writes{to, count, true, "the target"};
  if (!async) {
    order(nullptr, host_, name, writes);
    lock.unlock();
    std::memset(memory, value, count);
    return 0;
  }
  Queued item;
  item.task.name = name;
  item.task.touches = {writes};
  item.task.run = [this, to, count, value] {
    unsigned char* into = reach(to, count, false);
    if (into == nullptr) return static_cast<int>(ACL_ERROR_RT_DEVICE_MEM_ERROR);
    std::memset(into, value, count);
    return 0;
  };
  push(*stream, std::move(item));
  return 0;
}

}  // namespace stand_in
