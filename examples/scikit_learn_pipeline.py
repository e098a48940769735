# %% [markdown]
# # Codes in a scikit-learn pipeline
#
# Every method is an estimator: it can be cloned, searched over and put in a pipeline, and its
# output (-1 and +1) is what a linear classifier likes.

# %%
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from ddh.hashers import ITQ, SDH

features, labels = load_digits(return_X_y=True)
train, test, train_labels, test_labels = train_test_split(
    features, labels, test_size=0.25, random_state=0
)

# %% [markdown]
# ## Classify by codes
#
# A digit is 64 numbers; its code has 32 bits. How much does a classifier lose?

# %%
whole = Pipeline([("pca", PCA(40)), ("svm", LinearSVC())])
coded = Pipeline([("pca", PCA(40)), ("codes", ITQ(32, random_state=0)), ("svm", LinearSVC())])
for name, pipeline in {"40 real numbers": whole, "32 bits": coded}.items():
    print(f"{name:16} {pipeline.fit(train, train_labels).score(test, test_labels):.3f}")

# %% [markdown]
# ## Choose a method and a code length
#
# On folds of the training rows; the test rows are asked once, at the end.

# %%
search = GridSearchCV(
    coded,
    {"codes": [ITQ(random_state=0), SDH(random_state=0)], "codes__bits": [16, 32]},
    cv=3,
)
search.fit(train, train_labels)
print(search.best_params_)
print(f"on held-out rows: {search.score(test, test_labels):.3f}")
