#include "idempotency/patterns/state_machine.hpp"

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string draw_states(std::string_view title, std::span<const DrawnState> states,
                        std::span<const DrawnMove> moves) {
  std::string out = "digraph " + quoted(title) + " {\n  rankdir = LR;\n  node [shape = box];\n";
  for (const DrawnState& state : states) {
    out += "  " + quoted(state.name);
    if (state.kind == StateKind::initial) out += " [style = bold]";
    if (state.kind == StateKind::final) out += " [peripheries = 2]";
    out += ";\n";
  }
  for (const DrawnMove& move : moves) {
    out += "  " + quoted(move.from) + " -> " + quoted(move.to);
    if (!move.cycle.empty()) out += " [style = dashed, label = " + quoted(move.cycle) + ']';
    out += ";\n";
  }
  return out + "}\n";
}

void throw_unknown_state(std::string_view stored) {
  throw Error(Errc::store_corrupt,
              "an object is in a state that its machine does not know: was it written by a newer "
              "version, or by hand?",
              std::string(stored));
}

void throw_unlisted_state() {
  throw Error(Errc::invalid_argument, "the state is none of those that its machine lists");
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
