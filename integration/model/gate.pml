/* The gate: what package guard counts, asks and waits for. mount.pml and tree.pml
 * include this file; doc.go has the properties, and says how to read the models.
 *
 * Roots are numbered: 0 is the root that ends; what 1 is, the including file says. */
#define BIT(x) (1<<(x))
#define GENS 3
#define G(r, g) ((r)*GENS+(g))

byte cur = 1;                /* the snapshot has the root's name: 1+root, 0: nobody */
bit live[2]; bit rw[2];      /* root.state, root.policy */
bit hid;                     /* the patterns in force hide a name that was shown */
bit dead[2];                 /* root.dead is closed */
byte gen[2];                 /* root.gen, by number; those below are older */
byte older[2];               /* the older ones that generation.older leads to, as bits */
byte running[2*GENS];        /* generation.running */
bit ret[2];                  /* the ending of the root has returned */
bit nret;                    /* the narrowing has returned, and no widening has begun */

/* code: guard.(*root).acquire */
inline acquire(r, g, in) {
  in = 1;
#ifdef M_STATEFIRST
  if :: atomic { !live[r] -> in = 0 } :: atomic { live[r] -> skip } fi;
#endif
  do
  :: in -> g = gen[r];
     running[G(r,g)]++;
     if
#ifndef M_NOREREAD
     :: atomic { gen[r] != g -> running[G(r,g)]-- }
     :: atomic { gen[r] == g -> skip };
#else
     :: skip;
#endif
#ifndef M_STATEFIRST
        if :: atomic { !live[r] -> running[G(r,g)]--; in = 0 } :: atomic { live[r] -> skip } fi;
#endif
        break
     fi
  :: else -> break
  od }

/* code: guard.(*generation).release, guard.(*Lease).Done */
inline release(r, g) { running[G(r,g)]-- }

/* Nothing is counted in the older generations of c, which is running or another counter.
 * code: guard.(*generation).counted */
#define NONE(c, r) (!(older[r]&1 && c[G(r,0)]) && !(older[r]&2 && c[G(r,1)]))

/* code: guard.(*root).drain */
inline newGen(r) { atomic { older[r] = older[r]|BIT(gen[r]); gen[r]++ } }
