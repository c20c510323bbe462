#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lora {

/// A list that a signal handler may iterate while threads add and remove values: lock-free, with nodes that are reused
/// but never freed. A handler that races with a removal may still see the removed value, but never a mixture of it and
/// the value that reuses its node.
template <class T>
class SignalList {
  static_assert(std::is_trivially_copyable_v<T>);
  using Word = std::uint64_t;
  static constexpr std::size_t words = (sizeof(T) + sizeof(Word) - 1) / sizeof(Word);

  struct Node {
    std::atomic<Word> value[words] = {};
    std::atomic<unsigned> uses{0};  // changes before value does
    Node* next = nullptr;
    std::atomic<bool> taken{true};
    std::atomic<bool> shown{false};
  };

 public:
  /// Adds a value and removes it on destruction.
  class Entry {
   public:
    Entry() = default;
    Entry(Entry&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    Entry& operator=(Entry&& other) noexcept {
      std::swap(node_, other.node_);
      return *this;
    }
    ~Entry() { remove(); }

    void remove() {
      if (node_ == nullptr) return;
      node_->shown.store(false);
      std::exchange(node_, nullptr)->taken.store(false);
    }

   private:
    friend SignalList;
    explicit Entry(Node* node) : node_(node) {}
    Node* node_ = nullptr;
  };

  [[nodiscard]] Entry add(const T& value) {
    Node* node = first_.load();
    while (node != nullptr && node->taken.exchange(true)) node = node->next;
    if (node == nullptr) {
      node = new Node;
      node->next = first_.load();
      while (!first_.compare_exchange_weak(node->next, node)) {}
    }
    Word copy[words] = {};
    std::memcpy(copy, &value, sizeof value);
    ++node->uses;
    for (std::size_t i = 0; i < words; ++i) node->value[i].store(copy[i], std::memory_order_release);
    node->shown.store(true);
    return Entry(node);
  }

  /// Calls see(value) for each value. `see` must be async-signal-safe if called from a handler.
  template <class See>
  void visit(See&& see) const {
    for (const Node* node = first_.load(); node != nullptr; node = node->next) {
      const unsigned uses = node->uses.load();
      if (!node->shown.load()) continue;
      Word copy[words];
      for (std::size_t i = 0; i < words; ++i) copy[i] = node->value[i].load(std::memory_order_acquire);
      if (node->uses.load() != uses) continue;  // another value by now
      T value;
      std::memcpy(&value, copy, sizeof value);
      see(std::as_const(value));
    }
  }

 private:
  std::atomic<Node*> first_{nullptr};
};

}  // namespace lora
