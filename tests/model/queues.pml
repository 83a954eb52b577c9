/* Quotas, gangs and preemption (docs/dev/adr/0029): what is admitted, bound, answered and suspended at any instant.

   Each `atomic` is one decision of the leader together with its write, or one act of others; a leader can end between any two of
   them, and the next one has the pods and objects alone. Lost replies and deposed leaders are the matter of claims.pml. Claims 0 and
   1 are in queue A (with GANG as one gang), claim 2 is in queue B; with ELSEWHERE claim 3 is in queue A, too, at another pool than the
   gang. The queues are a cohort. README.md names the switches. */

#define CLAIMS 4
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef DELETIONS
#define DELETIONS 1               /* objects that users delete with kubectl */
#endif
#ifndef RUNS
#define RUNS 1                    /* executions */
#endif
#define CAPACITY 2                /* of the cohort; each queue has one and may borrow the other's */
#define NOMINAL 1
#define QUEUE(k) ((k) == 2)

/* ---- What the API server, the nodes and the executors hold ---- */
#define GONE 0
#define BOUND 1
#define ENDING 2
byte pod[CLAIMS];
bool object[CLAIMS];              /* its CodeSandbox is written */
bool asleep[CLAIMS];              /* its object says that it is suspended; it waits to go on under its old position */
bool saved[CLAIMS];               /* the workspace has its variables as they are now */
bool busy[CLAIMS];                /* an execution runs */
bool over[CLAIMS];                /* refused, released, or its object was deleted */

/* ---- What the leader knows, and forgets with its end ---- */
#define OUT 0
#define IN 1                      /* charged, and to be bound */
#define ON 2                      /* charged, with a pod */
bool counted;                     /* the takeover is done */
byte st[CLAIMS];
bool joined[CLAIMS];              /* its caller's stream is open */
bool found;                       /* an earlier leader has bound a part of the gang */
byte victim = CLAIMS;             /* the session that is about to be suspended */

/* ---- What callers have ---- */
bool answered[CLAIMS];
bool left[CLAIMS];                /* the caller is gone for good */
bool complete;                    /* all of the gang has come */
bool later[CLAIMS];               /* it came after that, as its ticket says to each leader */
byte crashes = CRASHES, deletions = DELETIONS, runs = RUNS;

#define is(a) ((a) -> 1 : 0)
#define in_use (is(pod[0] != GONE) + is(pod[1] != GONE) + is(pod[2] != GONE) + is(pod[3] != GONE))
#define used(q) (q == 0 -> is(st[0] != OUT) + is(st[1] != OUT) + is(st[3] != OUT) : is(st[2] != OUT))
#define total (used(0) + used(1))
#define orphan(k) (pod[k] == BOUND && answered[k] && !object[k] && over[k])
#define waits(k) (!over[k] && st[k] == OUT && pod[k] == GONE && (asleep[k] || (joined[k] && !answered[k])))
/* While an owner waits for what it has lent, none borrows. */
#define owner_waits (used(1) < NOMINAL && waits(2))
#define may_borrow(k) (QUEUE(k) == 0 -> !owner_waits : !(used(0) < NOMINAL && (waits(0) || waits(1) || waits(3))))
#define fits(k) (total < CAPACITY && (used(QUEUE(k)) < NOMINAL || may_borrow(k)))

#ifdef GANG
#define of_gang(k) ((k) < 2 && !asleep[k])
#else
#define of_gang(k) false
#endif
#define gang_waits (!over[0] && joined[0] && joined[1] && !answered[0] && !answered[1])
#define lacks (is(st[0] == OUT) + is(st[1] == OUT))
#define behind(k) (later[k] && gang_waits && !asleep[k])

inline end_pod(k) {
    if
    :: pod[k] == BOUND -> pod[k] = ENDING
    :: else -> skip
    fi
}

inline undo(k) {
    over[k] = true; joined[k] = false; object[k] = false; asleep[k] = false;
    if
    :: st[k] == IN -> st[k] = OUT
    :: else -> end_pod(k)
    fi
}

#define SERVES counted
#ifdef ADMIT_PARTS
#define alone(k) true
#else
#define alone(k) !of_gang(k)
#endif
#ifdef ANSWER_PARTS
#define answers(k) true
#else
#define answers(k) !of_gang(k)
#endif
#ifdef FREE_EARLY
#define is_free(k) (pod[k] != BOUND)
#elif defined(FREE_WITH_OBJECT)
#define is_free(k) (pod[k] == GONE || orphan(k))
#else
#define is_free(k) (pod[k] == GONE)
#endif
#ifdef SKIP_ORPHANS
#define counts(k) (pod[k] != GONE && !orphan(k))
#else
#define counts(k) (pod[k] != GONE)
#endif
#ifdef PREEMPT_BUSY
#define is_idle(k) true
#else
#define is_idle(k) !busy[k]
#endif
#ifdef SUSPEND_UNSAVED
#define is_saved(k) true
#else
#define is_saved(k) saved[k]
#endif
#ifdef PREEMPT_BLINDLY
#define borrows(k) true
#else
#define borrows(k) (used(QUEUE(k)) > NOMINAL)
#endif
#ifdef PASS_GANG
#define is_kept(k) false
#elif defined(KEEP_FOR_EVER)
#define is_kept(k) (later[k] && !answered[0])
#else
#define is_kept(k) behind(k)
#endif
#define session(k) (st[k] == ON && pod[k] == BOUND && answered[k] && object[k] && !over[k])

inline admit(k) {
    assert(!behind(k));                                         /* (11) a gang is not passed by what came later elsewhere */
    st[k] = IN
}

inline bind(k) {
    assert(in_use < CAPACITY);                                  /* (7) the quota holds at every instant */
    assert(!asleep[k] || saved[k]);                             /* (10) a preempted session has its variables again */
    pod[k] = BOUND; st[k] = ON; asleep[k] = false
}

inline suspend(k) {
    assert(!busy[k] && used(QUEUE(k)) > NOMINAL);               /* (9) no running session, and none inside its quota */
    asleep[k] = true; pod[k] = ENDING; victim = CLAIMS
}

#define STEPS(k) \
    :: atomic { SERVES && alone(k) && waits(k) && fits(k) && !is_kept(k) -> admit(k) } \
    :: atomic { SERVES && st[k] == IN -> bind(k) } \
    :: atomic { SERVES && answers(k) && st[k] == ON && pod[k] == BOUND && joined[k] && !answered[k] -> answered[k] = true } \
    :: atomic { SERVES && st[k] == ON && pod[k] == BOUND && answered[k] && !object[k] && !over[k] -> object[k] = true } \
    :: atomic { SERVES && left[k] && !over[k] && (answered[k] || alone(k)) -> undo(k) } \
    :: atomic { SERVES && st[k] == ON && is_free(k) -> st[k] = OUT } \
    :: atomic { SERVES && owner_waits && total >= CAPACITY && victim == CLAIMS && session(k) && !busy[k] && \
                used(QUEUE(k)) > NOMINAL -> saved[k] = true; victim = k } \
    :: atomic { SERVES && victim == k && session(k) && is_idle(k) && is_saved(k) && borrows(k) -> suspend(k) } \
    :: atomic { SERVES && victim == k && !(session(k) && is_idle(k) && is_saved(k) && borrows(k)) -> victim = CLAIMS }

active proctype leader() {
    byte k;
    do
    :: atomic { !counted ->
        for (k : 0 .. CLAIMS - 1) {
            st[k] = (counts(k) -> ON : OUT)
        }
        found = of_gang(0) && !answered[0] && !answered[1] && (pod[0] == BOUND || pod[1] == BOUND);
        k = 0; counted = true }
    STEPS(0)
    STEPS(1)
    STEPS(2)
    STEPS(3)
#ifdef GANG
    :: atomic { SERVES && gang_waits && lacks > 0 && pod[0] != ENDING && pod[1] != ENDING && total + lacks <= CAPACITY &&
                !owner_waits ->
        if
        :: st[0] == OUT -> st[0] = IN
        :: else -> skip
        fi;
        if
        :: st[1] == OUT -> st[1] = IN
        :: else -> skip
        fi }
    :: atomic { SERVES && gang_waits && pod[0] == BOUND && pod[1] == BOUND && st[0] == ON && st[1] == ON ->
        answered[0] = true; answered[1] = true }
#ifndef KEEP_PARTS
    /* Compensation: a caller is gone before the answer, or a part that an earlier leader had bound is not completed in time. */
    :: atomic { SERVES && (left[0] || left[1] || found) && !answered[0] && !answered[1] && !over[0] -> undo(0); undo(1) }
#endif
#endif
    od
}

#define ACTS(k) \
    :: atomic { pod[k] == ENDING -> pod[k] = GONE; busy[k] = false } \
    :: atomic { orphan(k) -> pod[k] = ENDING }                  /* the garbage collector */ \
    :: atomic { deletions > 0 && object[k] -> deletions--; object[k] = false; asleep[k] = false; over[k] = true } \
    :: atomic { runs > 0 && session(k) && !busy[k] -> runs--; busy[k] = true } \
    :: atomic { busy[k] -> busy[k] = false; saved[k] = false }

active proctype others() {
    byte k;
    do
    ACTS(0)
    ACTS(1)
    ACTS(2)
    ACTS(3)
    :: atomic { (crashes > 0 || deletions > 0 || runs > 0) -> crashes = 0; deletions = 0; runs = 0 }    /* no more of it */
    :: atomic { crashes > 0 && counted -> crashes--; counted = false; found = false; victim = CLAIMS;
        for (k : 0 .. CLAIMS - 1) {
            st[k] = OUT; joined[k] = false
        }
        k = 0 }
    od
}

proctype caller(byte k) {
    bool patient, came;
    if
    :: patient = true
    :: skip
    fi;
    do
    :: atomic { SERVES && !joined[k] && !answered[k] && !over[k] ->
        joined[k] = true;
        later[k] = later[k] || (k == 3 && complete && !came);
        came = true; complete = complete || (joined[0] && joined[1]) }
    :: atomic { !patient && !answered[k] -> left[k] = true; joined[k] = false; break }
    :: answered[k] || over[k] -> break
    od;
    if
    :: answered[k] -> left[k] = true                            /* it releases its session */
    :: skip
    fi
}

#define quiet(k) \
    assert(pod[k] != BOUND || answered[k]); \
    assert(!(waits(k) && alone(k) && fits(k) && !behind(k)))

init {
    atomic {
        counted = true;
        run caller(0); run caller(1); run caller(2);
#ifdef ELSEWHERE
        run caller(3)
#endif
    }
    timeout;
    atomic {
        quiet(0); quiet(1); quiet(2); quiet(3);                           /* (3) no claim is forgotten, and nothing is bound for none */
#ifdef GANG
        assert(answered[0] == answered[1]);                     /* (8) all of a gang, or none of it */
        assert(!(gang_waits && total + lacks <= CAPACITY && !owner_waits));
#endif
        assert(!(owner_waits && used(0) > NOMINAL && (session(0) || session(1))))    /* lent quota comes back */
    }
}
