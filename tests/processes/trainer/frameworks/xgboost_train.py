"""An XGBoost training as people write it: `train` with `TrainingCheckPoint`. It knows nothing of us."""

import argparse
import time

import numpy as np
import xgboost


class Slowly(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        time.sleep(args.round_seconds)
        return False


parser = argparse.ArgumentParser()
parser.add_argument("--output", required=True)
parser.add_argument("--resume")
parser.add_argument("--rounds", type=int, required=True)
parser.add_argument("--round-seconds", type=float, default=0.0)
args = parser.parse_args()

x = np.random.default_rng(1).normal(size=(256, 8))
data = xgboost.DMatrix(x, label=(x.sum(axis=1) > 0).astype(float))
done = 0
if args.resume:
    done = xgboost.Booster(model_file=args.resume).num_boosted_rounds()
print("begins at", done, flush=True)
model = xgboost.train(
    {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "seed": 7},
    data,
    num_boost_round=args.rounds - done,
    xgb_model=args.resume,
    callbacks=[xgboost.callback.TrainingCheckPoint(args.output, interval=5), Slowly()],
)
model.save_model(args.output + "/final.ubj")
