#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/key.hpp"
#include "idempotency/patterns/state_machine.hpp"
#include "idempotency/stores/redis_script.hpp"

namespace idempotency {
inline namespace v0 {

struct RedisStatesOptions {
  /// Whose ids they are: the type of their keys, `prefix:{type:id}:state`.
  std::string type;
};

/// Moves objects through their states, each of which is a Redis string with the state's name: one script a move.
///
/// A script is a step of its own: it is part of no transaction, and keeps no history. Ids are the values of keys.
///
/// Errors of all members: those of `run_script`; `Errc::invalid_key` for an id or a type that no key can have, `Errc::invalid_argument` for
/// a state that the machine does not list, both before anything is sent; `Errc::store_corrupt` for a stored text that is
/// no state of the machine.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the store and the machine.
template <class State, ScriptStore StoreT>
class RedisStates {
 public:
  RedisStates(StoreT& store, const StateMachine<State>& machine, RedisStatesOptions options)
      : store_(&store), machine_(&machine), options_(std::move(options)) {}
  RedisStates(StoreT& store, const StateMachine<State>&& machine,
              RedisStatesOptions options) = delete;

  /// A new object, which stays until it is removed by hand. `moved` when it is new, `already_there` when there is one in that state,
  /// `not_from_here` when it has gone on, `forbidden` when objects do not begin there.
  TransitionResult<State> create(std::string_view id, State initial) {
    const std::string_view name = detail::listed_name(*machine_, initial);
    if (!machine_->is_initial(initial)) {
      return TransitionResult<State>(TransitionStatus::forbidden);
    }
    return result_of(initial, run(scripts().create, id, {name}));
  }

  TransitionResult<State> transition(std::string_view id, State from, State to) {
    const std::string_view from_name = detail::listed_name(*machine_, from);
    const std::string_view to_name = detail::listed_name(*machine_, to);
    if (!machine_->allows(from, to)) {
      return TransitionResult<State>(TransitionStatus::forbidden);
    }
    return result_of(to, run(scripts().move, id, {from_name, to_name}));
  }

  /// The state of an object now; nothing when there is none.
  [[nodiscard]] std::optional<State> look(std::string_view id) {
    const RedisReply reply = run(scripts().look, id, {});
    if (reply.is_nil()) return std::nullopt;
    return detail::state_of(*machine_, reply.bytes());
  }

 private:
  struct Scripts {
    /// Reads by a command that counts as a write and changes nothing, so that a replica, whose copy may be old, refuses it; before
    /// Redis 6.2 there is none.
    static constexpr std::string_view head = R"lua(
local function state()
  local v = redis.pcall('GETEX', KEYS[1])
  if type(v) == 'table' and v.err and v.err:find('nknown', 1, true) then
    return redis.call('GET', KEYS[1])
  end
  return v
end
)lua";
    static RedisScript with_head(std::string_view body) {
      return RedisScript(std::string(head) + std::string(body));
    }

    /// ARGV: the state. 1 when it is new; else the state that there is.
    RedisScript create = with_head(R"lua(
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 1 end
return state()
)lua");
    /// ARGV: from, to. 1 when it has moved; else the state that it is in, or nothing.
    RedisScript move = with_head(R"lua(
local v = state()
if v ~= ARGV[1] then return v end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
)lua");
    RedisScript look = with_head("return state()");
  };

  static const Scripts& scripts() {
    static const Scripts all;
    return all;
  }
  RedisReply run(const RedisScript& script, std::string_view id, const RedisWords& arguments) {
    return store_->run_script(script, {store_->name_for(Key(options_.type, id), "state")},
                              arguments);
  }
  [[nodiscard]] TransitionResult<State> result_of(State to, const RedisReply& reply) const {
    using Result = TransitionResult<State>;
    if (reply == RedisReply(1)) return Result(TransitionStatus::moved, to);
    if (reply.is_nil()) return Result(TransitionStatus::missing);
    return detail::not_moved(detail::state_of(*machine_, reply.bytes()), to);
  }

  StoreT* store_;
  const StateMachine<State>* machine_;
  RedisStatesOptions options_;
};

}  // namespace v0
}  // namespace idempotency
