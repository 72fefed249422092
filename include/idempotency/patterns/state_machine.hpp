#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace idempotency {
inline namespace v0 {

/// Where an object's life begins, where it ends.
enum class StateKind : std::uint8_t { ordinary, initial, final };

/// One state: `name` is what is stored and drawn, so it must not change once objects exist.
template <class State>
struct StateInfo {
  State state;
  std::string_view name;
  StateKind kind = StateKind::ordinary;
};

/// One permitted move. `cycle` says in words why the business may come back to where it has been ("reopened"); a
/// way back without it does not compile.
template <class State>
struct StateMove {
  State from;
  State to;
  std::string_view cycle = {};
};

namespace detail {

// Not `constexpr` on purpose: the compiler names the one that a faulty machine calls.
void state_machine_has_more_than_32_states_or_128_moves();
void state_machine_names_a_state_twice();
void state_machine_has_a_state_without_a_name();
void state_machine_has_no_initial_state();
void state_machine_moves_from_or_to_a_state_that_is_not_listed();
void state_machine_lists_a_move_twice();
void state_machine_moves_from_a_state_to_itself();
void state_machine_leaves_a_final_state();
void state_machine_has_a_state_that_cannot_be_reached();
void state_machine_has_a_state_without_an_exit_that_is_not_final();
void state_machine_has_a_cycle_that_no_move_allows_by_name();

}  // namespace detail

/// The states of a business object and the moves between them, checked when it is compiled.
///
/// Refused by the compiler: a state that cannot be reached from an initial one, a move out of a final state, a dead
/// end that is not final, a cycle that no move allows by name, anything listed twice.
///
/// Thread safety: constant after construction.
/// Example:
/// ```
/// constexpr StateMachine<OrderState> order_machine(
///     {{OrderState::created, "created", StateKind::initial},
///      {OrderState::paid, "paid"},
///      {OrderState::shipped, "shipped", StateKind::final}},
///     {{OrderState::created, OrderState::paid}, {OrderState::paid, OrderState::shipped}});
/// ```
template <class State>
class StateMachine {
  static_assert(std::is_enum_v<State>,
                "idempotency: the states of a StateMachine are the enumerators of an enum.");

 public:
  static constexpr std::size_t most_states = 32;
  static constexpr std::size_t most_moves = 128;

  template <std::size_t States, std::size_t Moves>
  consteval StateMachine(const StateInfo<State> (&states)[States],
                         const StateMove<State> (&moves)[Moves])
      : state_count_(States), move_count_(Moves) {
    if (States > most_states || Moves > most_moves) {
      detail::state_machine_has_more_than_32_states_or_128_moves();
    }
    for (std::size_t at = 0; at < States; ++at)
      states_[at] = states[at];
    for (std::size_t at = 0; at < Moves; ++at)
      moves_[at] = moves[at];
    check_states();
    check_moves();
    check_every_state_is_reached_and_left();
    check_cycles();
  }

  [[nodiscard]] constexpr std::span<const StateInfo<State>> states() const noexcept {
    return std::span(states_).first(state_count_);
  }
  [[nodiscard]] constexpr std::span<const StateMove<State>> moves() const noexcept {
    return std::span(moves_).first(move_count_);
  }

  [[nodiscard]] constexpr bool allows(State from, State to) const noexcept {
    for (const StateMove<State>& move : moves()) {
      if (move.from == from && move.to == to) return true;
    }
    return false;
  }
  [[nodiscard]] constexpr bool is_initial(State state) const noexcept {
    return kind_of(state) == StateKind::initial;
  }
  [[nodiscard]] constexpr bool is_final(State state) const noexcept {
    return kind_of(state) == StateKind::final;
  }
  /// The name under which it is stored; empty for a value that is no state of this machine.
  [[nodiscard]] constexpr std::string_view name_of(State state) const noexcept {
    const std::size_t at = index_of(state);
    return at < state_count_ ? states_[at].name : std::string_view();
  }
  [[nodiscard]] constexpr std::optional<State> find(std::string_view name) const noexcept {
    for (const StateInfo<State>& info : states()) {
      if (info.name == name) return info.state;
    }
    return std::nullopt;
  }

 private:
  using Reached = std::array<bool, most_states>;

  [[nodiscard]] constexpr std::size_t index_of(State state) const noexcept {
    std::size_t at = 0;
    while (at < state_count_ && states_[at].state != state)
      ++at;
    return at;
  }
  [[nodiscard]] constexpr std::optional<StateKind> kind_of(State state) const noexcept {
    const std::size_t at = index_of(state);
    if (at == state_count_) return std::nullopt;
    return states_[at].kind;
  }

  constexpr void check_states() const {
    bool has_initial = false;
    for (std::size_t at = 0; at < state_count_; ++at) {
      if (states_[at].name.empty()) detail::state_machine_has_a_state_without_a_name();
      has_initial = has_initial || states_[at].kind == StateKind::initial;
      for (std::size_t other = 0; other < at; ++other) {
        if (states_[at].state == states_[other].state || states_[at].name == states_[other].name) {
          detail::state_machine_names_a_state_twice();
        }
      }
    }
    if (!has_initial) detail::state_machine_has_no_initial_state();
  }

  constexpr void check_moves() const {
    for (std::size_t at = 0; at < move_count_; ++at) {
      const StateMove<State>& move = moves_[at];
      if (index_of(move.from) == state_count_ || index_of(move.to) == state_count_) {
        detail::state_machine_moves_from_or_to_a_state_that_is_not_listed();
      }
      if (move.from == move.to) detail::state_machine_moves_from_a_state_to_itself();
      if (is_final(move.from)) detail::state_machine_leaves_a_final_state();
      for (std::size_t other = 0; other < at; ++other) {
        if (moves_[other].from == move.from && moves_[other].to == move.to) {
          detail::state_machine_lists_a_move_twice();
        }
      }
    }
  }

  constexpr void check_every_state_is_reached_and_left() const {
    Reached reached{};
    for (std::size_t at = 0; at < state_count_; ++at)
      reached[at] = states_[at].kind == StateKind::initial;
    for (std::size_t round = 0; round < state_count_; ++round) {
      for (const StateMove<State>& move : moves()) {
        if (reached[index_of(move.from)]) reached[index_of(move.to)] = true;
      }
    }
    for (std::size_t at = 0; at < state_count_; ++at) {
      if (!reached[at]) detail::state_machine_has_a_state_that_cannot_be_reached();
      bool is_left = states_[at].kind == StateKind::final;
      for (const StateMove<State>& move : moves())
        is_left = is_left || move.from == states_[at].state;
      if (!is_left) detail::state_machine_has_a_state_without_an_exit_that_is_not_final();
    }
  }

  /// States without a way in are taken away, again and again; what stays is a cycle.
  constexpr void check_cycles() const {
    Reached gone{};
    for (std::size_t round = 0; round < state_count_; ++round) {
      for (std::size_t at = 0; at < state_count_; ++at) {
        bool has_way_in = false;
        for (const StateMove<State>& move : moves()) {
          has_way_in = has_way_in || (move.cycle.empty() && move.to == states_[at].state &&
                                      !gone[index_of(move.from)]);
        }
        gone[at] = gone[at] || !has_way_in;
      }
    }
    for (std::size_t at = 0; at < state_count_; ++at) {
      if (!gone[at]) detail::state_machine_has_a_cycle_that_no_move_allows_by_name();
    }
  }

  std::array<StateInfo<State>, most_states> states_{};
  std::array<StateMove<State>, most_moves> moves_{};
  std::size_t state_count_;
  std::size_t move_count_;
};

namespace detail {

struct DrawnState {
  std::string_view name;
  StateKind kind;
};
struct DrawnMove {
  std::string_view from;
  std::string_view to;
  std::string_view cycle;
};
[[nodiscard]] std::string draw_states(std::string_view title, std::span<const DrawnState> states,
                                      std::span<const DrawnMove> moves);

}  // namespace detail

/// The machine in the language of Graphviz (`dot -Tsvg`).
template <class State>
[[nodiscard]] std::string to_graphviz(const StateMachine<State>& machine, std::string_view title) {
  std::array<detail::DrawnState, StateMachine<State>::most_states> states{};
  std::array<detail::DrawnMove, StateMachine<State>::most_moves> moves{};
  std::size_t at = 0;
  for (const StateInfo<State>& info : machine.states())
    states[at++] = {info.name, info.kind};
  at = 0;
  for (const StateMove<State>& move : machine.moves())
    moves[at++] = {machine.name_of(move.from), machine.name_of(move.to), move.cycle};
  return detail::draw_states(title, std::span(states).first(machine.states().size()),
                             std::span(moves).first(machine.moves().size()));
}

/// What became of a move.
enum class TransitionStatus : std::uint8_t {
  moved = 1,      ///< it was in `from` and is in `to` now
  already_there,  ///< it is in `to`: a repetition, or this call's own move whose answer was lost; nothing is to be done
  not_from_here,  ///< it is in another state, `actual()`; nothing was written
  forbidden,      ///< the machine has no such move; the carrier was not asked
  missing,        ///< there is no such object
};

/// The answer of `transition`.
///
/// Thread safety: a value; distinct copies may be used concurrently.
template <class State>
class [[nodiscard]] TransitionResult {
 public:
  explicit TransitionResult(TransitionStatus status,
                            std::optional<State> actual = std::nullopt) noexcept
      : status_(status), actual_(actual) {}

  [[nodiscard]] TransitionStatus status() const noexcept { return status_; }
  /// Whether the object is where it should be now, moved or there already.
  [[nodiscard]] bool is_there() const noexcept {
    return status_ == TransitionStatus::moved || status_ == TransitionStatus::already_there;
  }
  /// Where the object is; nothing when it was not asked for (`forbidden`) or is `missing`.
  [[nodiscard]] std::optional<State> actual() const noexcept { return actual_; }

  friend bool operator==(const TransitionResult&, const TransitionResult&) = default;

 private:
  TransitionStatus status_;
  std::optional<State> actual_;
};

namespace detail {

[[noreturn]] void throw_unknown_state(std::string_view stored);
[[noreturn]] void throw_unlisted_state();

/// The text that carriers store for a state.
///
/// Errors: `Errc::invalid_argument` for one that the machine does not list.
template <class State>
[[nodiscard]] std::string_view listed_name(const StateMachine<State>& machine, State state) {
  const std::string_view name = machine.name_of(state);
  if (name.empty()) throw_unlisted_state();
  return name;
}

/// The other way round.
///
/// Errors: `Errc::store_corrupt` for a text that is no state of the machine.
template <class State>
[[nodiscard]] State state_of(const StateMachine<State>& machine, std::string_view stored) {
  const std::optional<State> state = machine.find(stored);
  if (!state) throw_unknown_state(stored);
  return *state;
}

/// What is told of an object that was not where it should have been moved from.
template <class State>
[[nodiscard]] TransitionResult<State> not_moved(State actual, State to) noexcept {
  return TransitionResult<State>(
      actual == to ? TransitionStatus::already_there : TransitionStatus::not_from_here, actual);
}

}  // namespace detail

/// Who moved an object, why, and under which key; kept by carriers that keep a history.
struct TransitionNote {
  std::string_view who = {};
  std::string_view why = {};
  std::string_view key = {};
};

}  // namespace v0
}  // namespace idempotency
