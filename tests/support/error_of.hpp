#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "idempotency/error.hpp"

namespace idempotency::testing_support {

/// The `Error` that `fn` throws; a failed test when it throws none.
template <class Fn>
Error error_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no idempotency::Error was thrown";
  return Error(Errc{}, "nothing was thrown");
}

template <class Fn>
Errc code_of(Fn&& fn) {
  return error_of(std::forward<Fn>(fn)).code();
}

/// The code of the `Error` that `fn` throws; nothing when it throws none.
template <class Fn>
std::optional<Errc> ending_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
    return std::nullopt;
  } catch (const Error& error) {
    return error.code();
  }
}

}  // namespace idempotency::testing_support
