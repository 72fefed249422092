/* Callers of one process that wait for the same operation (core/waiting_room, core/protocol), and one caller of
 * another process, over one record. Callers meet by key and meaning (fingerprint): the first leads and asks the store,
 * the others stand in line. The leader's answer counts for everybody in line; a leader without an answer (it failed
 * retryably, was superseded, ended by itself) makes the first in line the next leader.
 *
 *   -DMODE=take_over | hold   on_expired_lease
 *   -DDEADLINES=1             those in line may leave at any moment (0: they wait until they are called; 2: caller 1 may)
 *   -DMEANINGS=1 | 2          2: the last caller asks with another fingerprint
 *   -DLIVENESS                with the claim that every call ends
 *   -DBUG=<name>              plants a bug of bugs.pml
 */
#define take_over 0
#define hold 1
#ifndef MODE
#define MODE take_over
#endif
#ifndef DEADLINES
#define DEADLINES 1
#endif
#ifndef MEANINGS
#define MEANINGS 1
#endif
#define CALLERS 3
#define outsider_id CALLERS

#include "store.pml"

#define own_mode (MODE == hold)
#define result_of(i) (10 + i)
#if MEANINGS == 2
#define meaning_of(i) (i == CALLERS - 1)
#else
#define meaning_of(i) 0
#endif
#if BUG == joined_by_key_alone
#define line_of(i) 0
#else
#define line_of(i) meaning_of(i)
#endif

mtype = { outside, leads, follows, promoted, delivered };
mtype = { told_result, told_failure, told_uncertain, told_mismatch, told_nothing };

mtype place[CALLERS] = outside;
mtype delivered_answer[CALLERS] = told_nothing;
byte delivered_result[CALLERS] = no_result;
byte leader[MEANINGS] = nobody;
chan line[MEANINGS] = [CALLERS] of { byte };

byte meaning = 0;  /* of the record: its fingerprint */
byte calls_ended = 0;

/* A mismatch is judged after retention and before state. */
inline begin_with_meaning(i, meant) {
  judge_retention();
  if
  :: from != phase_absent && meaning != meant -> next_answer = answer_lost; next_owner = owner_keep
  :: else ->
     begin(i, own_mode);
     if
     :: next_owner == owner_caller -> meaning = meant
     :: else -> skip
     fi
  fi
}

hidden byte next_in_line;

inline wake_first(at) {
  line[at]?next_in_line;
  leader[at] = next_in_line;
  place[next_in_line] = promoted
}

inline hand_over(i) {
  assert(leader[line_of(i)] == i);
  leader[line_of(i)] = nobody;
  place[i] = outside;
#if BUG != owner_leaves_without_successor
  if
  :: len(line[line_of(i)]) > 0 -> wake_first(line_of(i))
  :: else -> skip
  fi;
#endif
#if BUG == every_waiter_promoted
  do
  :: len(line[line_of(i)]) > 0 -> wake_first(line_of(i))
  :: else -> break
  od;
#endif
  next_in_line = nobody
}

inline deliver(i, said, with) {
  assert(leader[line_of(i)] == i);
  leader[line_of(i)] = nobody;
  place[i] = outside;
  do
  :: len(line[line_of(i)]) > 0 ->
     line[line_of(i)]?next_in_line;
     place[next_in_line] = delivered;
     delivered_answer[next_in_line] = said;
     delivered_result[next_in_line] = with;
#if BUG == waiter_never_woken
     break
#endif
  :: else -> break
  od;
#if BUG == waiter_never_woken
  do
  :: len(line[line_of(i)]) > 0 -> line[line_of(i)]?next_in_line
  :: else -> break
  od;
#endif
  next_in_line = nobody
}

inline what_was_told_is_recorded(i) {
  if
  :: delivered_answer[i] == told_result ->
     assert(delivered_result[i] == kept && kept != no_result && kept != failed_for_good && meaning == meaning_of(i))
  :: delivered_answer[i] == told_failure -> assert(kept == failed_for_good && meaning == meaning_of(i))
  :: delivered_answer[i] == told_mismatch -> assert(meaning != meaning_of(i))
  :: delivered_answer[i] == told_uncertain -> skip
  fi
}

proctype caller(byte i) {
  byte at = 0;
  mtype answer;

  d_step {
    if
    :: leader[line_of(i)] == nobody -> leader[line_of(i)] = i; place[i] = leads
    :: else -> line[line_of(i)]!i; place[i] = follows
    fi
  };

  if
  :: place[i] != follows && place[i] != delivered
  :: d_step { place[i] == delivered -> what_was_told_is_recorded(i) }; goto done
#if DEADLINES
  :: d_step {
       place[i] == follows && (DEADLINES == 1 || i == 1) ->
#if BUG != deadline_keeps_place_in_line
       line[line_of(i)]??eval(i);
#endif
       place[i] = outside
     };
     goto done
#endif
  fi;

  /* It leads: nobody else of this process asks the store. */
  do
  :: d_step { assert(leader[line_of(i)] == i); begin_with_meaning(i, meaning_of(i)); answer = next_answer; at = fence };
     if
     :: answer == answer_acquired -> break
     :: answer == answer_in_progress -> skip                                /* another process: asked again later */
     :: d_step { answer == answer_in_progress -> hand_over(i) }; goto done  /* its own deadline */
     :: d_step { answer == answer_completed -> deliver(i, told_result, result) }; goto done
     :: d_step { answer == answer_failed -> deliver(i, told_failure, no_result) }; goto done
     :: d_step { answer == answer_uncertain -> deliver(i, told_uncertain, no_result) }; goto done
     :: d_step { answer == answer_lost -> deliver(i, told_mismatch, no_result) }; goto done
     fi
  od;

  if
  :: true ->
#if BUG == delivered_before_stored
     d_step { deliver(i, told_result, result_of(i)) };
     d_step { complete(i, at, result_of(i)) }
#else
     d_step { complete(i, at, result_of(i)); answer = next_answer };
     if
     :: d_step { answer == answer_stored -> deliver(i, told_result, result_of(i)) }
     :: d_step { answer == answer_lost -> hand_over(i) }   /* superseded */
     fi
#endif
  :: true ->
     d_step { fail_permanent(i, at); answer = next_answer };
     if
     :: d_step { answer == answer_stored ->
#if BUG == failure_delivered_as_empty_success
                 deliver(i, told_result, no_result)
#else
                 deliver(i, told_failure, no_result)
#endif
               }
     :: d_step { answer == answer_lost -> hand_over(i) }
     fi
  :: true -> d_step { fail_retryable(i, at) }; d_step { hand_over(i) }
  :: true ->
     d_step { doubt(i, at); answer = next_answer };
     if
     :: d_step { answer == answer_stored -> deliver(i, told_uncertain, no_result) }
     :: d_step { answer == answer_lost -> hand_over(i) }
     fi
  :: d_step { hand_over(i) }  /* it ends without a word: its guard or thread is destroyed */
  fi;
done:
  atomic {
    at = 0; answer = 0; place[i] = outside; delivered_answer[i] = told_nothing; delivered_result[i] = no_result;
    calls_ended++
  }
}

proctype outsider() {
  byte at = 0;
  mtype answer;
  d_step { begin_with_meaning(outsider_id, 0); answer = next_answer; at = fence };
  if
  :: answer == answer_acquired ->
     if
     :: d_step { complete(outsider_id, at, result_of(outsider_id)) }
     :: d_step { fail_retryable(outsider_id, at) }
     :: true  /* it dies */
     fi
  :: else
  fi
}

active proctype clock() {
end:
  do
  :: d_step { phase == phase_processing && !lease_out -> lease_runs_out() }
  od
}

init {
  atomic {
    run caller(0);
    run caller(1);
    run caller(2);
    run outsider()
  }
}

#ifdef LIVENESS
ltl every_call_ends { <> (calls_ended == CALLERS) }
#endif
