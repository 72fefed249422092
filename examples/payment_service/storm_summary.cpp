// Prints what two storms did, one with the guard and one without, as a table. Ends with an error when a
// promise was broken, or when the storm without the guard did no harm and so proves nothing.
//
//   storm_summary --with FILE --without FILE

#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "arguments.hpp"
#include "storm_report.hpp"

namespace {

using shop::StormReport;

StormReport read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("no report " + path);
  return nlohmann::json::parse(file).get<StormReport>();
}

std::string money(std::int64_t cents) {
  std::string text = std::to_string(cents / 100) + '.';
  if (cents % 100 < 10) text += '0';
  return text + std::to_string(cents % 100);
}

void line(const std::string& what, const std::string& with, const std::string& without) {
  std::cout << "  " << std::left << std::setw(52) << what << std::right << std::setw(14) << with
            << std::setw(14) << without << '\n';
}

void line(const std::string& what, std::int64_t with, std::int64_t without) {
  line(what, std::to_string(with), std::to_string(without));
}

void rule() { std::cout << "  " << std::string(80, '-') << '\n'; }

std::string part(std::int64_t some, std::int64_t all) {
  return std::to_string(some) + " of " + std::to_string(all);
}

void print(const StormReport& with, const StormReport& without) {
  std::cout << '\n';
  line("", "with guard", "guard off");
  rule();
  line("requests sent", with.requests, without.requests);
  line("  replies dropped by the client", with.replies_dropped, without.replies_dropped);
  line("  replies that came from the record", with.replayed, without.replayed);
  line("service killed with SIGKILL, and started again", with.kills, without.kills);
  line("ids whose copies got different replies", with.keys_differing, without.keys_differing);
  rule();
  line("payments", with.payments, without.payments);
  line("  declined by the bank, as planned", with.payments_declined, without.payments_declined);
  line("charges at the bank", with.charges, without.charges);
  line("PAYMENTS CHARGED MORE THAN ONCE", with.payments_charged_twice,
       without.payments_charged_twice);
  line("  money taken too much", money(with.cents_too_much), money(without.cents_too_much));
  line("payments lost", with.payments_lost, without.payments_lost);
  line("ids used again for another amount, refused", part(with.misuses_refused, with.misuses),
       part(without.misuses_refused, without.misuses));
  rule();
  line("transfers", with.transfers, without.transfers);
  line("rows in the ledger", with.ledger_rows, without.ledger_rows);
  line("TRANSFERS BOOKED MORE THAN ONCE", with.transfers_booked_twice,
       without.transfers_booked_twice);
  line("transfers lost", with.transfers_lost, without.transfers_lost);
  rule();
  line("payments left uncertain by the SIGKILLs",
       std::to_string(with.settled_as_succeeded + with.settled_as_retry + with.left_open),
       "not known");
  line("  the bank had charged: settled as succeeded", std::to_string(with.settled_as_succeeded),
       "-");
  line("  the bank had not: free for the next attempt", std::to_string(with.settled_as_retry), "-");
  if (with.bookings == "hold") {
    line("transfers left uncertain, settled by the ledger", std::to_string(with.bookings_settled),
         "-");
  }
  line("  still open at the end", std::to_string(with.left_open), "-");
  rule();
  line("mode of payments", "hold", "none");
  line("mode of transfers", with.bookings, "none");
  line("seconds", with.seconds, without.seconds);
  std::cout << '\n';
}

/// Says what must hold; counts what does not.
class Verdict {
 public:
  void expect(bool holds, const std::string& sentence) {
    if (holds) return;
    ++broken_;
    std::cout << "BROKEN: " << sentence << '\n';
  }
  [[nodiscard]] bool good() const noexcept { return broken_ == 0; }

 private:
  int broken_ = 0;
};

bool judge(const StormReport& with, const StormReport& without) {
  Verdict verdict;
  verdict.expect(with.guard == "on" && without.guard == "off",
                 "one report of each kind is compared");
  verdict.expect(with.payments > 0 && with.transfers > 0, "the storm had something to send");
  verdict.expect(with.kills > 0 && without.kills > 0, "the service was killed, both times");
  verdict.expect(with.replies_dropped > 0, "replies were dropped");
  constexpr int enough_kills = 5;  // two may both fall into a moment without a payment under way
  verdict.expect(with.kills < enough_kills || with.settled_as_succeeded + with.settled_as_retry > 0,
                 "the kills left payments uncertain, and the bank's answers settled them");
  verdict.expect(with.payments_charged_twice == 0, "with the guard no payment is charged twice");
  verdict.expect(with.charges == with.payments - with.payments_declined,
                 "with the guard there is one charge for each payment that is not declined");
  verdict.expect(with.keys_differing == 0, "with the guard all replies for an id are the same");
  verdict.expect(with.payments_lost == 0, "with the guard no payment is lost");
  verdict.expect(with.misuses_refused == with.misuses, "an id used for another amount is refused");
  verdict.expect(with.transfers_booked_twice == 0, "with the guard no transfer is booked twice");
  verdict.expect(with.transfers_lost == 0, "with the guard no transfer is lost");
  verdict.expect(with.ledger_rows == with.transfers, "with the guard a transfer has one row");
  verdict.expect(with.left_open == 0, "everything uncertain is settled");
  verdict.expect(without.payments_charged_twice > 0,
                 "without the guard payments are charged twice");
  verdict.expect(without.transfers_booked_twice > 0,
                 "without the guard transfers are booked twice");
  return verdict.good();
}

}  // namespace

int main(int count, char** values) {
  try {
    const shop::Arguments arguments(count, values, {"with", "without"});
    const StormReport with = read(arguments.text("with"));
    const StormReport without = read(arguments.text("without"));
    print(with, without);
    if (!judge(with, without)) return 1;
    std::cout << "Every promise was kept: " << with.payments_charged_twice
              << " double charges with the guard, " << without.payments_charged_twice
              << " without it.\n";
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << "storm_summary: " << problem.what() << '\n';
    return 1;
  }
}
