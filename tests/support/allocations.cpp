#include "support/allocations.hpp"

#include <cstdlib>
#include <new>

namespace {
thread_local std::size_t allocation_count = 0;
}  // namespace

// Clang's thread sanitizer has operators of its own that cannot be replaced; it calls this for each allocation.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IDEMPOTENCY_OPERATORS_ARE_THE_SANITIZERS
#endif
#endif

#ifdef IDEMPOTENCY_OPERATORS_ARE_THE_SANITIZERS

extern "C" void __sanitizer_malloc_hook(const volatile void* /*memory*/, std::size_t /*size*/);
extern "C" void __sanitizer_malloc_hook(const volatile void* /*memory*/, std::size_t /*size*/) {
  ++allocation_count;
}

#else

// Replaced for the whole executable, so that tests can count.
void* operator new(std::size_t size) {
  ++allocation_count;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocation_count;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif

std::size_t idempotency::testing_support::allocations() noexcept { return allocation_count; }
