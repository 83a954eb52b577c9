/* The claim protocol (DESIGN.md D2): one write binds a warm pod; all that follows is put right behind it.

   A process is a task of a fleet together with what it has on the wire. Each `atomic` or `d_step` is one decision (taken only
   while the fleet thinks that it leads) or one write landing at the API server; anything may happen between the two, the fleet's
   end included, and the write lands all the same. Caches: a fleet may take any pod for warm at any time, which is every stale
   cache there can be. README.md names the switches: the settings, and the mutants that each take one rule away. */

#include "apiserver.pml"

/* ---- A fleet: claims and releases of one request id, one write after the other ---- */
#define leave_unless_leading if :: leads[f] != e -> goto idle :: else -> skip fi

inline tell(it) {
    if
    :: fleet[f].asked[r] && !ends[r] ->
        answer[r] = it; fleet[f].asked[r] = false;
        if
        :: it != NO_POD && leads[f] == transitions -> assert(holder[it] == r); given[r] = it
        :: else -> skip
        fi
    :: else -> fleet[f].asked[r] = false
    fi
}

#define UNDONE 255                /* in place of an object: the claim is undone, and may be asked for again */
#ifdef YOUNG
#define is_young(f, r) fleet[f].young[r]
#define set_young(f, r, it) fleet[f].young[r] = it
#else
#define is_young(f, r) false
#define set_young(f, r, it) skip
#endif

#ifdef CLAIM_ID_IS_REQUEST
#define bound_here (holder[p] == r)
#elif defined(BLIND_RETRY)
#define bound_here false
#else
#define bound_here (holder[p] == r && fencing[p] == e)
#endif

proctype claim(byte f; byte r) {
    byte e, p, u, i, reply;
idle:
    atomic {
        e = 0; p = 0; u = 0; i = 0; reply = 0;
        serves[f] && (fleet[f].asked[r] || ends[r] || is_young(f, r)) -> e = leads[f]; p = fleet[f].pod[r];
        if
#ifdef YOUNG
        :: is_young(f, r) && !ends[r] -> goto object            /* it is old enough, at any time */
        :: is_young(f, r) && ends[r] -> goto drop_young
        :: ends[r] && !is_young(f, r) -> goto release
        :: !ends[r] && p != NONE && fleet[f].asked[r] -> tell(p); goto idle
        :: !is_young(f, r) && !ends[r] && p == NONE -> skip
#else
        :: ends[r] -> goto release
        :: !ends[r] && p != NONE -> tell(p); goto idle          /* a repeated request id: the same answer */
        :: else -> skip
#endif
        fi
    }
pick:
    atomic {
        leave_unless_leading;
        if
        :: state[0] != WARM && state[1] != WARM -> fleet[f].pod[r] = NONE; tell(NO_POD); goto idle
        :: else -> skip
        fi;
        if
        :: p = 0; touched = true
        :: touched -> p = 1                                     /* the pods are alike: the first one that is tried is pod 0 */
        fi;
        fleet[f].pod[r] = p                                     /* known before it is sent: the cleaner leaves it alone */
    }
send:
    atomic {
        if
        :: true -> bind(p, r, e, reply)
        :: losses > 0 -> losses--; bind(p, r, e, reply); reply = LOST
        :: losses > 0 && late == 0 -> losses--; delay(BIND, p, r, e); reply = LOST
        fi
    }
    atomic {
        leave_unless_leading;
        if                                                      /* after a lost reply a live GET says who has the pod */
#ifdef YOUNG
        /* A caller who is gone, or asks another fleet, has no use for it: the claim is undone. */
        :: (reply == DONE || bound_here) && !fleet[f].asked[r] && !ends[r] -> u = UNDONE; goto drop_young
        :: (reply == DONE || bound_here) && (fleet[f].asked[r] || ends[r]) -> tell(p); set_young(f, r, true); goto idle
#else
        :: reply == DONE || bound_here -> tell(p)               /* who leads no more leaves the pod to its successor */
#endif
#ifndef BLIND_RETRY
        :: reply == LOST && state[p] == WARM -> goto send       /* it may still land: no other pod before this one is settled */
        :: reply == LOST && state[p] != WARM && !bound_here -> goto pick
#else
        :: reply == LOST -> goto pick
#endif
#ifdef SILENT_REFUSAL
        :: reply == REFUSED && !bound_here -> false              /* the claim is forgotten */
#else
        :: reply == REFUSED && !bound_here -> goto pick         /* also when it was the first try that landed at last */
#endif
        fi
    }
#ifdef WRONG_ORDER
    atomic {
        if
        :: losses > 0 && late == 0 -> losses--; delay(CREATE, p, r, e); goto idle       /* a release does not wait for it */
        :: else -> skip
        fi
    }
#endif
object:
    atomic {
        if
        :: find(p, r, i); create(i, p, e, reply); u = uid(i)
        :: losses > 0 && late == 0 -> losses--; delay(CREATE, p, r, e); reply = LOST
        fi
    }
    atomic {
        leave_unless_leading;
        if
        :: reply == LOST -> goto object
        :: reply == DONE -> goto owned
        :: reply == REFUSED -> find(p, r, i)                    /* AlreadyExists: a live GET says for whom */
        fi;
        if
#ifdef EXISTS_IS_DONE
        :: !exists[i] -> u = 0; goto owned
#else
        :: !exists[i] -> goto object                            /* deleted in between */
#endif
        :: exists[i] && names[i] == p -> u = uid(i); goto owned
        :: exists[i] && names[i] != p && by[i] > e -> goto lose
        :: exists[i] && names[i] != p && by[i] <= e -> u = uid(i)    /* of a deposed fleet: the lower number loses */
        fi
    }
    atomic { delete_object(u) };
    goto object;
lose:
    atomic { delete_pod(p) };
    atomic {
        leave_unless_leading;
        fleet[f].pod[r] = NONE; set_young(f, r, false);
        goto idle
    }
owned:
#ifdef YOUNG
    atomic { own(p, r, u) };
    atomic {
        leave_unless_leading;
        fleet[f].young[r] = false;
        goto idle
    }
drop_young:
    atomic { delete_claimed(p, r, e) };
    atomic {
        leave_unless_leading;
        fleet[f].pod[r] = NONE; fleet[f].young[r] = false;
        if
        :: u == UNDONE -> skip
        :: else -> ends[r] = false; released[r] = true
        fi;
        goto idle
    }
#elif !defined(OWNER_LATER)
    atomic { own(p, r, u); goto idle };
#else
    goto idle;
#endif

release:
    atomic {
        if
        :: p == NONE -> u = 0
        :: else -> find(p, r, i); u = (exists[i] && names[i] == p -> uid(i) : 0)
        fi
    }
    atomic { delete_object(u) };
    atomic {
        leave_unless_leading;
        fleet[f].pod[r] = NONE; ends[r] = false; released[r] = true;
        goto idle
    }
}

/* ---- A fleet: inventory at the start of a leadership, then what turns up, and scale-down ---- */
#define FREE 1
#define MAKE 2
#define OWN 3
#define RETIRE 4
#define KEEP_ON 5
#define OURS(f, p) (state[p] == CLAIMED && fencing[p] <= leads[f])
#define stray(f, p) (OURS(f, p) && owner[p] == 0 && fleet[f].pod[holder[p]] != p)
#define strange(f, p) (OURS(f, p) && is_there(owner[p]) && fleet[f].pod[holder[p]] == NONE)
#define dangling(i) (exists[i] && !recorded[i] && state[names[i]] == GONE)

proctype lead(byte f) {
    byte e, p, u, i, r, act;
idle:
    atomic {
        e = 0; p = 0; u = 0; i = 0; r = 0; act = 0;
        if
        :: leads[f] != 0 && !serves[f] -> e = leads[f]; goto inventory
        :: serves[f] && (state[0] == RETIRING || stray(f, 0) || strange(f, 0)) -> p = 0
        :: serves[f] && (state[1] == RETIRING || stray(f, 1) || strange(f, 1)) -> p = 1
        :: serves[f] && (stray(f, 2) || strange(f, 2)) -> p = 2
        :: serves[f] && dangling(0) && by[0] <= leads[f] && fleet[f].pod[0] == NONE -> u = uid(0); goto drop
#if OBJECTS > 1
        :: serves[f] && dangling(1) && by[1] <= leads[f] && fleet[f].pod[1 / NAMES] == NONE -> u = uid(1); goto drop
#endif
        :: serves[f] && shrinks > 0 -> shrinks--;
            if
            :: p = 0; touched = true
            :: touched -> p = 1
            fi;
            act = RETIRE; goto write
        fi;
        /* A late claim of a deposed fleet, or a pod that a scale-down left: its object first, then the pod. */
        u = owner[p]; act = FREE;
        if
        :: state[p] == CLAIMED -> r = holder[p]; find(p, r, i)
        :: else -> goto write
        fi;
        if
        :: u == 0 && exists[i] && names[i] == p -> u = uid(i)
        :: else -> skip
        fi;
        if
        :: u != 0 -> goto drop
        :: else -> goto write
        fi
    }
drop:
    atomic { delete_object(u) };
    goto idle;
inventory:
    atomic {
        leave_unless_leading;
        u = 0; act = 0;
        if
        :: p == PODS -> goto objects
        :: p < PODS && state[p] == RETIRING -> act = FREE; goto write
        :: p < PODS && state[p] == CLAIMED -> r = holder[p]; find(p, r, i)
        :: else -> p++; goto inventory
        fi;
        if
        :: owner[p] != 0 ->
            if
            :: is_there(owner[p]) -> fleet[f].pod[r] = p
            :: else -> skip                                     /* the garbage collector's */
            fi;
            p++; goto inventory
        :: owner[p] == 0 && exists[i] && names[i] == p -> act = OWN; u = uid(i)
        :: owner[p] == 0 && exists[i] && names[i] != p -> act = FREE
#ifdef COMPLETE_ANY
        :: owner[p] == 0 && !exists[i] -> act = MAKE
#elif defined(FORGET_YOUNG)
        :: owner[p] == 0 && !exists[i] -> p++; goto inventory
#elif defined(YOUNG)
        :: owner[p] == 0 && !exists[i] && keeper[p] == e && fleet[f].pod[r] == p -> p++; goto inventory
        :: owner[p] == 0 && !exists[i] && (keeper[p] != e || fleet[f].pod[r] != p) ->
            act = (keeper[p] >= served -> KEEP_ON : FREE)
#else
        :: owner[p] == 0 && !exists[i] -> act = (fencing[p] >= served -> MAKE : FREE)
#endif
        fi
    }
write:
    atomic {
        if
        :: act == FREE -> delete_pod(p)
        :: act == MAKE -> find(p, r, i); create(i, p, fencing[p], act)
        :: act == OWN -> own(p, r, u)
#ifdef YOUNG
        :: act == KEEP_ON && state[p] == CLAIMED && holder[p] == r && keeper[p] < e ->
            keeper[p] = e; fleet[f].pod[r] = p; fleet[f].young[r] = true
#endif
#ifdef RETIRE_BLINDLY
        :: act == RETIRE && state[p] != GONE -> state[p] = RETIRING
#endif
        :: act == RETIRE && state[p] == WARM -> state[p] = RETIRING
        :: else -> skip
        fi;
        if
        :: e != 0 -> goto inventory
        :: else -> goto idle
        fi
    }
objects:
    atomic {
        leave_unless_leading;
        if
        :: dangling(0) -> u = uid(0); goto drop
#if OBJECTS > 1
        :: dangling(1) -> u = uid(1); goto drop
#endif
        :: else -> skip
        fi;
        if
        :: transitions == e -> served = e; serves[f] = true     /* a write to the Lease, over the version that it holds */
        :: else -> leads[f] = 0
        fi;
        goto idle
    }
}

/* ---- The operator and the garbage collector ---- */
#ifdef ADOPT_OWNED
#define unowned(i) (state[names[i]] == CLAIMED && owner[names[i]] != uid(i))
#else
#define unowned(i) (state[names[i]] == CLAIMED && owner[names[i]] == 0)
#endif
#ifdef REPLACE_UNRECORDED
#define had_pod(i) true
#else
#define had_pod(i) recorded[i]
#endif
#ifdef NO_LIVE_GET
#define pod_gone(i) true          /* its cache does not show the pod */
#else
#define pod_gone(i) (state[names[i]] == GONE)
#endif
#define to_adopt(i) (exists[i] && unowned(i))
#define to_record(i) (exists[i] && !recorded[i] && owner[names[i]] == uid(i))
#define to_replace(i) (exists[i] && had_pod(i) && pod_gone(i) && names[i] != REPLACEMENT)

active proctype operator() {
    byte p, u, i;
idle:
    atomic {
        p = 0; u = 0; i = 0;
        if
        :: to_adopt(0) || to_record(0) || to_replace(0)
#if OBJECTS > 1
        :: to_adopt(1) || to_record(1) || to_replace(1) -> i = 1
#endif
        fi;
        p = names[i]; u = uid(i);
        if
        :: to_adopt(i) -> goto adopt
        :: to_record(i) -> recorded[i] = true; goto idle
        :: to_replace(i)
        fi
    }
    atomic {
        if
        :: state[REPLACEMENT] != GONE -> goto idle              /* AlreadyExists */
        :: else -> skip
        fi;
        state[REPLACEMENT] = CLAIMED; holder[REPLACEMENT] = i / NAMES; fencing[REPLACEMENT] = by[i]; owner[REPLACEMENT] = u;
        if
        :: is_there(u) -> names[i] = REPLACEMENT
        :: else -> skip
        fi;
        goto idle
    }
adopt:
    atomic { own(p, i / NAMES, u); goto idle }
}

#define orphan(p) (state[p] == CLAIMED && owner[p] != 0 && !is_there(owner[p]))
active proctype garbage_collector() {
    do
    :: d_step { orphan(0) -> delete_pod(0) }
    :: d_step { orphan(1) -> delete_pod(1) }
    :: d_step { orphan(2) -> delete_pod(2) }
    od
}

/* ---- Clients, leaderships, and the end ---- */
#define ask(f) fleet[f].asked[r] = true; fleet[1 - f].asked[r] = false
proctype client(byte r) {
    do
    :: atomic { answer[r] == NONE && serves[0] && !fleet[0].asked[r] -> ask(0) }
    :: atomic { answer[r] == NONE && serves[1] && !fleet[1].asked[r] -> ask(1) }
#ifdef YOUNG
    :: atomic { answer[r] == NONE && (fleet[0].asked[r] || fleet[1].asked[r]) ->    /* its stream breaks; it asks again */
        fleet[0].asked[r] = false; fleet[1].asked[r] = false }
#endif
    :: answer[r] != NONE -> break                               /* and keeps what it got */
#if !defined(SPLIT) && !defined(KEEP)
    :: atomic { ends[r] = true; given[r] = NONE; fleet[0].asked[r] = false; fleet[1].asked[r] = false; break }
#endif
    od
}

inline forget(f) {
    leads[f] = 0; serves[f] = false;
    fleet[f].pod[0] = NONE; fleet[f].asked[0] = false;
    fleet[f].pod[REQUESTS - 1] = NONE; fleet[f].asked[REQUESTS - 1] = false;
    set_young(f, 0, false); set_young(f, REQUESTS - 1, false)
}
#define behind(f) (leads[f] != 0 && leads[f] != transitions)

#define has(p, r) (state[p] == CLAIMED && holder[p] == r -> 1 : 0)
inline quiet(r) {
    count = has(0, r) + has(1, r) + has(2, r);
    assert(count < 2);                                          /* (2) no request id with two pods for good */
    assert(answer[r] != NONE || released[r]);                   /* (3) no lost claim */
    assert(!released[r] || count == 0);                         /* (4) no recovered corpse */
    assert(given[r] == NONE || (count == 1 && holder[given[r]] == r));
#ifndef SPLIT                     /* there, a fleet whose client went to the other one keeps the pod until the lease is over */
    assert(answer[r] != NO_POD || count == 0)
#endif
}

init {
    bool more = true;
    byte count, k;
    d_step {
        state[0] = WARM; state[1] = WARM; leads[0] = 1; serves[0] = true
    }
    atomic {
        run lead(0); run lead(1);
        run claim(0, 0); run claim(1, 0); run client(0);
#if REQUESTS > 1
        run claim(0, 1); run claim(1, 1); run client(1)
#endif
    }
    do
    :: d_step { more && transitions < LEADERSHIPS ->            /* the other one's turn; killed and back is no more than that */
#ifndef SPLIT
        forget(0); forget(1);
#endif
        transitions++; forget(1 - transitions % 2); leads[1 - transitions % 2] = transitions }
    :: d_step { behind(0) -> forget(0) }                        /* it notices at last */
    :: d_step { behind(1) -> forget(1) }
    :: more -> more = false                                     /* no end of a leadership any more */
    :: timeout -> break
    od;
    atomic {
        assert(serves[0] != serves[1]);
        quiet(0);
#if REQUESTS > 1
        quiet(1);
#endif
        for (k : 0 .. PODS - 1) {
            assert(state[k] == GONE || state[k] == WARM || (state[k] == CLAIMED && is_there(owner[k])))     /* (5) no leak */
        }
    }
}
