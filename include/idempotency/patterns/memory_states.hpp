#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/patterns/state_machine.hpp"

namespace idempotency {
inline namespace v0 {

/// The states of objects that live in this process only: for tests, and for what ends with the process anyway.
///
/// Errors: `Errc::invalid_argument` for a state that the machine does not list.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the machine.
template <class State>
class MemoryStates {
 public:
  /// One line of the history.
  struct Moved {
    std::string object;
    State from;
    State to;
    std::string who;
    std::string why;
    std::string key;
    friend bool operator==(const Moved&, const Moved&) = default;
  };

  explicit MemoryStates(const StateMachine<State>& machine) : machine_(&machine) {}
  explicit MemoryStates(const StateMachine<State>&& machine) = delete;

  /// A new object. `moved` when it is new, `already_there` when there is one in that state, `not_from_here` when it has gone
  /// on, `forbidden` when objects do not begin there.
  TransitionResult<State> create(std::string_view id, State initial) {
    static_cast<void>(detail::listed_name(*machine_, initial));
    if (!machine_->is_initial(initial)) {
      return TransitionResult<State>(TransitionStatus::forbidden);
    }
    const std::scoped_lock lock(mutex_);
    const auto [found, is_new] = states_.try_emplace(std::string(id), initial);
    if (is_new) return TransitionResult<State>(TransitionStatus::moved, initial);
    return detail::not_moved(found->second, initial);
  }

  TransitionResult<State> transition(std::string_view id, State from, State to,
                                     const TransitionNote& note = {}) {
    static_cast<void>(detail::listed_name(*machine_, from));
    static_cast<void>(detail::listed_name(*machine_, to));
    if (!machine_->allows(from, to)) {
      return TransitionResult<State>(TransitionStatus::forbidden);
    }
    const std::scoped_lock lock(mutex_);
    const auto found = states_.find(id);
    if (found == states_.end()) return TransitionResult<State>(TransitionStatus::missing);
    if (found->second == from) {
      history_.push_back({std::string(id), from, to, std::string(note.who), std::string(note.why),
                          std::string(note.key)});
      found->second = to;
      return TransitionResult<State>(TransitionStatus::moved, to);
    }
    return detail::not_moved(found->second, to);
  }

  [[nodiscard]] std::optional<State> look(std::string_view id) const {
    const std::scoped_lock lock(mutex_);
    const auto found = states_.find(id);
    if (found == states_.end()) return std::nullopt;
    return found->second;
  }
  [[nodiscard]] std::vector<Moved> history() const {
    const std::scoped_lock lock(mutex_);
    return history_;
  }

 private:
  const StateMachine<State>* machine_;
  mutable std::mutex mutex_;
  std::map<std::string, State, std::less<>> states_;
  std::vector<Moved> history_;
};

}  // namespace v0
}  // namespace idempotency
